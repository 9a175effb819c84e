"""Storing: whichever way a row takes into its table, it is the row that the ORM would have written."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from reliable_messaging import OutgoingMessage, codec, enqueue, enqueue_many, outbox
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.storing import insert, store
from tests.testapp.models import Order

COLUMNS = [f.attname for f in OutboxMessage._meta.concrete_fields]
TIMES = {"created_at", "due_at", "expires_at"}
DUE = dt.datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=dt.timezone.utc)

MESSAGES: dict[str, tuple[OutgoingMessage, dict[str, Any]]] = {
    "plain": (OutgoingMessage(topic="t"), {"payload": "null"}),
    "delayed": (OutgoingMessage(topic="t", payload=1, delay=60.5), {"payload": "1"}),
    "at a time": (OutgoingMessage(topic="t", payload=1, due_at=DUE), {"payload": "1", "due_at": DUE}),
    "expiring": (OutgoingMessage(topic="t", payload=1, expires_in=60), {"payload": "1"}),
    "all options": (
        OutgoingMessage(
            topic="t",
            payload={"ü": [1, "🎉"]},
            queue="mail",
            priority=1,
            delay=dt.timedelta(days=1),
            expires_in=5,
            max_attempts=9,
            correlation_id="c",
            headers={"a": ["b", None, "ü"]},
        ),
        {
            "payload": '{"ü":[1,"🎉"]}',
            "queue": "mail",
            "priority": 1,
            "max_attempts": 9,
            "correlation_id": "c",
            "headers": {"a": ["b", None, "ü"]},
        },
    ),
    "plain again": (OutgoingMessage(topic="t"), {"payload": "null"}),
}
"""What is sent, and what the ORM would be given for it, but for times."""


def test_headers_as_deep_as_is_allowed_are_stored(using: str) -> None:
    """MariaDB refuses JSON of more than 32 levels, with an error that breaks the caller's transaction."""
    deep: Any = 1
    for _ in range(codec.MAX_DEPTH_OF_HEADERS - 1):
        deep = [deep]
    with transaction.atomic(using=using):
        enqueue("t", headers={"a": deep}, using=using)
    assert OutboxMessage._base_manager.using(using).get().headers == {"a": deep}


HOSTILE = [
    "\\N",
    "\\.",
    "\\",
    "\\\\",
    "\\t\\n\\x00",
    "'; DROP TABLE x; --",
    '"quoted" `ticked`',
    "100 % %s %(name)s %%",
    "{} {0} $1 ? :name",
    "a|b,c;d",
    " led and trailed ",
    "ünï 🎉 漢字 \u00a0\u200b\ufeff",
    "NULL",
]
"""Texts that mean something to COPY, to SQL, or to a driver's placeholders."""


def one(wanted: list[OutgoingMessage], using: str) -> list[OutboxMessage]:
    names = OutgoingMessage.__dataclass_fields__
    return [enqueue(**{name: getattr(w, name) for name in names}, using=using) for w in wanted]


def many(wanted: list[OutgoingMessage], using: str) -> list[OutboxMessage]:
    return enqueue_many(wanted, using=using)


@pytest.fixture(params=[one, many], ids=["one", "many"])
def send(request: pytest.FixtureRequest) -> Callable[[list[OutgoingMessage], str], list[OutboxMessage]]:
    return request.param


def as_stored(using: str, pk: uuid.UUID) -> dict[str, Any]:
    """The columns as the driver reads them, without what a field would make of them."""
    connection = connections[using]
    names = ", ".join(connection.ops.quote_name(name) for name in COLUMNS)
    field = OutboxMessage._meta.pk
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {names} FROM {OutboxMessage._meta.db_table} WHERE id = %s",
            [field.get_db_prep_value(pk, connection)],
        )
        return dict(zip(COLUMNS, cursor.fetchone(), strict=True))


def test_every_column_is_as_the_orm_writes_it(using: str, send: Any) -> None:
    """A twin with the same times, stored by bulk_create, differs in nothing but the id."""
    wanted = [message for message, _ in MESSAGES.values()]
    for row, (_, columns) in zip(send(wanted, using), MESSAGES.values(), strict=True):
        times = {name: getattr(row, name) for name in TIMES}
        twin = OutboxMessage(topic="t", **{**times, **columns})
        OutboxMessage._base_manager.using(using).bulk_create([twin])
        ours, theirs = as_stored(using, row.pk), as_stored(using, twin.pk)
        assert ours.pop("id") != theirs.pop("id")
        assert ours == theirs


def test_the_answer_is_the_row_that_was_stored(using: str, send: Any) -> None:
    """Saved, of its database, and equal in every column to what is read again."""
    rows = send([message for message, _ in MESSAGES.values()], using)
    for row in rows:
        again = OutboxMessage._base_manager.using(using).get(pk=row.pk)
        assert {name: getattr(row, name) for name in COLUMNS} == {n: getattr(again, n) for n in COLUMNS}
        assert (row._state.adding, row._state.db) == (False, using)
        assert row.get_deferred_fields() == set()
    assert [row.pk for row in rows] == sorted({row.pk for row in rows})
    assert rows[1].due_at - rows[1].created_at == dt.timedelta(seconds=60.5)
    assert rows[3].expires_at - rows[3].due_at == dt.timedelta(seconds=60)
    rows[0].refresh_from_db()
    rows[0].save(update_fields=["last_error"])


def test_hostile_texts_come_back_as_they_were(using: str, send: Any) -> None:
    """In the payload, the headers and every text column."""
    inside = [*HOSTILE, "tab\tnewline\nreturn\r\nend", "\x1f\x7f\x85\u2028"]  # names may not have these
    queues = {text: text.replace(",", ";").strip() for text in HOSTILE}  # --queues must be able to name them
    wanted = [
        OutgoingMessage(
            topic=text, payload=inside, queue=queues[text], correlation_id=text, headers={text: inside}
        )
        for text in HOSTILE
    ]
    rows = send(wanted, using)
    for row, text in zip(rows, HOSTILE, strict=True):
        stored = OutboxMessage._base_manager.using(using).get(pk=row.pk)
        assert (stored.topic, stored.queue, stored.correlation_id) == (text, queues[text], text)
        assert stored.headers == {text: inside}
        assert stored.payload == row.payload
        assert stored.as_message().payload == inside


@pytest.mark.parametrize("options", [{}, {"delay": 60}, {"expires_in": 60}, {"due_at": DUE, "expires_in": 5}])
def test_one_message_is_one_statement(using: str, options: Any) -> None:
    """Its times come back with it, where the database can answer an INSERT with columns."""
    connection = connections[using]
    with transaction.atomic(using=using), CaptureQueriesContext(connection) as queries:
        enqueue("t", using=using, **options)
    assert len(queries) == (1 if connection.features.can_return_columns_from_insert else 2)


@pytest.mark.parametrize("count", [2, 300])
def test_many_are_one_statement(using: str, count: int) -> None:
    """Besides the one that reads the clock: a COPY on PostgreSQL, elsewhere an INSERT."""
    with transaction.atomic(using=using), CaptureQueriesContext(connections[using]) as queries:
        enqueue_many([OutgoingMessage(topic="t") for _ in range(count)], using=using)
    _, stored = [query["sql"] for query in queries]
    assert stored.startswith("COPY " if using == "postgres" else f"{count} times: INSERT ")
    assert OutboxMessage._base_manager.using(using).count() == count


@pytest.fixture
def no_returning(using: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(connections[using].features, "can_return_columns_from_insert", False)
    insert.__globals__["_statement"].cache_clear()
    yield
    insert.__globals__["_statement"].cache_clear()


@pytest.mark.usefixtures("no_returning")
def test_a_database_that_returns_nothing_is_asked(using: str) -> None:
    """Older servers answer an INSERT with no columns: the times are read in a second statement."""
    for options in ({}, {"delay": 60, "expires_in": 5}):
        with CaptureQueriesContext(connections[using]) as queries, transaction.atomic(using=using):
            row = enqueue("t", using=using, **options)
        assert len([q for q in queries if q["sql"].startswith(("INSERT", "SELECT"))]) == 2
        stored = OutboxMessage._base_manager.using(using).get(pk=row.pk)
        assert [getattr(row, n) for n in COLUMNS] == [getattr(stored, n) for n in COLUMNS]


def test_who_looks_at_statements_sees_it(using: str, send: Any) -> None:
    """A wrapper around the connection's statements can refuse it, and then nothing is stored."""

    def refuse(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(("INSERT", "COPY")):
            raise ZeroDivisionError
        return execute(sql, params, many, context)

    with connections[using].execute_wrapper(refuse), pytest.raises(ZeroDivisionError):
        send([OutgoingMessage(topic="a"), OutgoingMessage(topic="b")], using)
    assert not OutboxMessage._base_manager.using(using).exists()


@pytest.fixture
def unstorable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the topic "bad" break a constraint of the table."""
    build_values = outbox.build_values

    def build(outgoing: OutgoingMessage, **options: Any) -> dict[str, Any]:
        values = build_values(outgoing, **options)
        return values | {"status": Status.CLAIMED} if outgoing.topic == "bad" else values

    monkeypatch.setattr(outbox, "build_values", build)


@pytest.mark.usefixtures("unstorable")
def test_a_row_that_is_refused_is_an_error_of_djangos(using: str, send: Any) -> None:
    """The caller's savepoint undoes it, all of it, and what the caller did besides commits."""
    bad = [*(OutgoingMessage(topic=f"good {n}") for n in range(3)), OutgoingMessage(topic="bad")]
    with transaction.atomic(using=using):
        Order.objects.using(using).create(number=1)
        with pytest.raises(IntegrityError), transaction.atomic(using=using):
            send(bad, using)
        send([OutgoingMessage(topic="after"), OutgoingMessage(topic="wards")], using)
    assert Order.objects.using(using).count() == 1
    topics = OutboxMessage._base_manager.using(using).order_by("id").values_list("topic", flat=True)
    assert list(topics) == ["after", "wards"]


@pytest.mark.usefixtures("unstorable")
def test_without_a_savepoint_the_transaction_is_broken(using: str, send: Any) -> None:
    """As after any failed write: nothing more can be done in it, and nothing of it is kept."""
    with pytest.raises(TransactionManagementError), transaction.atomic(using=using):
        Order.objects.using(using).create(number=1)
        with pytest.raises(IntegrityError):
            send([OutgoingMessage(topic="bad"), OutgoingMessage(topic="good")], using)
        Order.objects.using(using).create(number=2)
    assert not Order.objects.using(using).exists()
    assert not OutboxMessage._base_manager.using(using).exists()


@pytest.mark.parametrize("count", [1, 2])
def test_a_broken_transaction_takes_no_rows(using: str, count: int) -> None:
    """Where Django allows no statement any more, the caller is told, instead of having them undone."""
    now = dt.datetime.now(dt.timezone.utc)
    row = {"topic": "t", "payload": "1", "created_at": now, "due_at": now}
    with transaction.atomic(using=using):
        transaction.set_rollback(True, using=using)
        with pytest.raises(TransactionManagementError):
            store([row] * count, using)
    assert not OutboxMessage._base_manager.using(using).exists()


def test_one_plain_row_beside_deduplicated_ones(using: str) -> None:
    """All of its times are known, so the database works nothing out; each answer is at its place."""
    keys = ["b", None, "a", "b"]
    rows = enqueue_many(
        [OutgoingMessage(topic="t", payload=n, dedup_key=key) for n, key in enumerate(keys)], using=using
    )
    assert rows[0].pk == rows[3].pk
    assert [row.payload for row in rows[1:]] == ["1", "2", "3"]
    assert OutboxMessage._base_manager.using(using).count() == 3
