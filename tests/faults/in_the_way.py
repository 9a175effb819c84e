"""Sessions that stand in the way of workers: they hold locks that others need, or every connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from django.db import Error, connections, transaction

from reliable_messaging.models import OutboxMessage, Status
from tests.sessions import in_session
from tests.testapp.limits import SHARED
from tests.testapp.models import Effect

from .database_server import DatabaseServer

TABLE = OutboxMessage._meta.db_table
LOCK_TABLE = {
    "postgresql": f'LOCK TABLE "{TABLE}" IN ACCESS EXCLUSIVE MODE',
    "mysql": f"LOCK TABLES {TABLE} WRITE",
}
ENOUGH = 100
Block = Callable[[str], AbstractContextManager[None]]


@contextmanager
def held(block: Block, using: str) -> Iterator[None]:
    """By a session of its own, so that the caller can still ask, and produce."""
    ready, over = threading.Event(), threading.Event()

    def hold() -> None:
        with block(using):
            ready.set()
            over.wait(60)

    holder = in_session(hold)
    try:
        assert ready.wait(30), "the lock is not to be had"
        yield
    finally:
        over.set()
        holder.result(timeout=60)


@contextmanager
def locked_table(using: str) -> Iterator[None]:
    """Nobody can look, claim, settle or renew: as while a migration runs."""
    connection = connections[using]
    with ExitStack() as stack:
        if connection.vendor == "postgresql":
            stack.enter_context(transaction.atomic(using=using))
        with connection.cursor() as cursor:
            cursor.execute(LOCK_TABLE[connection.vendor])
            try:
                yield
            finally:
                if connection.vendor == "mysql":
                    cursor.execute("UNLOCK TABLES")


@contextmanager
def locked_claims(using: str) -> Iterator[None]:
    """What is claimed now cannot be settled: as while somebody inspects the rows."""
    rows = OutboxMessage._base_manager.using(using).filter(status=Status.CLAIMED)
    with transaction.atomic(using=using):
        list(rows.select_for_update(skip_locked=True).values_list("pk"))
        yield


@contextmanager
def locked_shared_row(using: str) -> Iterator[None]:
    """Handlers wait for a row of the business."""
    effects = Effect.objects.using(using)
    key = effects.filter(name=SHARED).values_list("pk", flat=True).get()
    with transaction.atomic(using=using):
        effects.select_for_update().get(pk=key)
        yield


def cross_claims(using: str) -> bool:
    """Lock what is claimed from the last to the first, while workers lock from the first to the last.
    Returns whether this session was the one that the server chose to end."""
    rows = OutboxMessage._base_manager.using(using)
    claimed = rows.filter(status=Status.CLAIMED).order_by("-id").values_list("pk", flat=True)
    try:
        with transaction.atomic(using=using):
            for key in list(claimed[:ENOUGH]):
                list(rows.filter(pk=key).select_for_update().values_list("pk"))
    except Error:
        return True
    return False


class Hogs:
    """Sessions that do nothing, on all the connections that a server has to give."""

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._sessions: list[Any] = []

    def __enter__(self) -> Hogs:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def take_all(self) -> None:
        for _ in range(ENOUGH):
            try:
                self._sessions.append(self._server.session())
            except Exception:  # the drivers' own: there are no more
                return
        raise AssertionError("the server has no limit")

    def leave(self, count: int | None = None) -> None:
        """That many of them go, or all."""
        for _ in range(len(self._sessions) if count is None else count):
            self._sessions.pop().close()
