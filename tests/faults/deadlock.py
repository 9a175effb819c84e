"""A real deadlock with a second session, which the handler loses."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from django.db import connections, transaction

from reliable_messaging import Message
from tests.sessions import in_session
from tests.testapp.models import Order
from tests.workers import eventually

WAITS = {
    "postgresql": "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s",
    # Not innodb_trx: what it shows gets no younger while it is asked often.
    "mysql": "SELECT command = 'Query' AND time_ms > 100 FROM information_schema.processlist WHERE id = %s",
}
SESSION = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
WEIGHT = 200
"""MariaDB ends whoever has written less."""


partners: list[Future[None]] = []


class _Undo(Exception):
    pass


def fall_into_deadlock(message: Message) -> None:
    """Raises the database's error. On a busy machine the partner may lose instead: then once more."""
    for _ in range(10):
        _meet_partner(message.using)
    raise AssertionError("the partner has lost ten times")


def wait_for_partners() -> None:
    while partners:
        partners.pop().exception(timeout=60)


def _meet_partner(using: str) -> None:
    first, second = in_session(_make_rows, using).result(timeout=30)
    ready, mine = threading.Event(), threading.Event()
    # Not waited for here: it needs a row that this transaction may hold until it is rolled back.
    partners.append(in_session(_meet, using, first, second, ready, mine, _ask(using, SESSION)))
    try:
        assert ready.wait(30)
        _lock(using, first)
        mine.set()
        _lock(using, second)  # waits for the partner first, so PostgreSQL looks for deadlocks here first
    finally:
        mine.set()


def _make_rows(using: str) -> tuple[int, int]:
    first, second = (Order.objects.using(using).create(number=-1).pk for _ in range(2))
    return first, second


def _meet(
    using: str, first: int, second: int, ready: threading.Event, locked: threading.Event, session: int
) -> None:
    try:
        with transaction.atomic(using=using):
            Order.objects.using(using).bulk_create([Order(number=-1) for _ in range(WEIGHT)])
            _lock(using, second)
            ready.set()
            assert locked.wait(30)
            in_session(_until_it_waits, using, session).result(timeout=30)
            _lock(using, first)
            raise _Undo
    except _Undo:
        Order.objects.using(using).filter(pk__in=[first, second]).delete()


def _until_it_waits(using: str, session: int) -> None:
    eventually(lambda: bool(_ask(using, WAITS, [session])), every=0.05)


def _lock(using: str, pk: int) -> None:
    # Not by the ORM: it would mark the transaction for rollback.
    with connections[using].cursor() as cursor:
        cursor.execute("UPDATE testapp_order SET number = -2 WHERE id = %s", [pk])


def _ask(using: str, questions: dict[str, str], params: list[int] | None = None) -> int:
    connection = connections[using]
    with connection.cursor() as cursor:
        cursor.execute(questions[connection.vendor], params)
        row = cursor.fetchone()
    return int(row[0]) if row else 0
