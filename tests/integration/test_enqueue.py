"""Enqueue: in the caller's transaction, checked before anything is written."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import json
import logging
import uuid
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import override_settings
from django.utils import timezone
from django.utils.text import format_lazy

from reliable_messaging import (
    OutgoingMessage,
    aenqueue,
    aenqueue_many,
    enqueue,
    enqueue_many,
    outbox,
    storing,
)
from reliable_messaging.exceptions import (
    DatabaseChoiceError,
    InvalidDueTime,
    InvalidMessage,
    InvalidName,
    InvalidPayload,
    NotInTransaction,
    ReliableMessagingError,
)
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.signals import enqueued
from tests.testapp.models import Order


def messages(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def test_a_message_commits_with_the_business_change(using: str) -> None:
    """Both rows are there after the commit, and enqueue returned the saved message."""
    with transaction.atomic(using=using):
        Order.objects.using(using).create(number=1)
        message = enqueue("order.created", {"number": 1}, using=using)
    stored = messages(using).get()
    assert stored.pk == message.pk
    assert (stored.status, stored.payload) == (Status.READY, '{"number":1}')
    assert (stored.due_at, stored.created_at) == (message.due_at, message.created_at)


def test_a_rollback_sends_nothing(using: str) -> None:
    """Neither the order nor its message was ever there."""
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=using):
        Order.objects.using(using).create(number=1)
        enqueue("order.created", using=using)
        raise ZeroDivisionError
    assert not Order.objects.using(using).exists()
    assert not messages(using).exists()


def test_a_rolled_back_savepoint_takes_only_its_own_message(using: str) -> None:
    """A message lives and dies with the block it was enqueued in."""
    with transaction.atomic(using=using):
        enqueue("kept", using=using)
        with pytest.raises(ZeroDivisionError), transaction.atomic(using=using):
            enqueue("gone", using=using)
            raise ZeroDivisionError
    assert [m.topic for m in messages(using)] == ["kept"]


def test_outside_a_transaction_it_commits_alone(using: str) -> None:
    """No atomic block: the message is stored at once."""
    enqueue("alone", using=using)
    assert messages(using).count() == 1


def test_require_atomic_refuses_that(using: str) -> None:
    """With REQUIRE_ATOMIC it is an error that says what to do, and nothing is written."""
    with override_settings(RELIABLE_MESSAGING={"REQUIRE_ATOMIC": True}):
        with pytest.raises(NotInTransaction, match="transaction.atomic"):
            enqueue("alone", using=using)
        assert not messages(using).exists()
        with transaction.atomic(using=using):
            enqueue("together", using=using)
    assert messages(using).count() == 1


def test_the_signal_and_the_log_line_come_on_commit_only(
    using: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Inside the transaction nobody is told; after a rollback nobody ever is."""
    told: list[str] = []

    def receive(message: OutboxMessage, **_: Any) -> None:
        told.append(message.topic)

    enqueued.connect(receive)
    try:
        with caplog.at_level(logging.INFO, logger="reliable_messaging"):
            with transaction.atomic(using=using):
                enqueue("one", using=using)
                assert (told, caplog.records) == ([], [])
            assert told == ["one"]
            with pytest.raises(ZeroDivisionError), transaction.atomic(using=using):
                enqueue("two", using=using)
                raise ZeroDivisionError
    finally:
        enqueued.disconnect(receive)
    assert told == ["one"]
    assert [record.rm["event"] for record in caplog.records] == ["message enqueued"]  # type: ignore[attr-defined]
    assert "payload" not in caplog.text


@pytest.mark.django_db
def test_capture_on_commit_callbacks_shows_the_on_commit_side(
    django_capture_on_commit_callbacks: Any,
) -> None:
    """In a TestCase the row is there inside the test, and one callback waits for the commit."""
    with django_capture_on_commit_callbacks() as callbacks:
        enqueue("order.created")
    assert len(callbacks) == 1
    assert messages("default").count() == 1


@pytest.mark.django_db(databases=["default", "other"])
def test_the_alias_inside_a_transaction_is_chosen() -> None:
    """Without using=, the message goes where the caller's transaction is; TestCase blocks do not count."""
    with transaction.atomic(using="other"):
        assert enqueue("here")._state.db == "other"
    assert enqueue("elsewhere")._state.db == "default"


@pytest.mark.django_db(databases=["default", "other"])
def test_two_open_transactions_ask_for_using() -> None:
    """It is not guessed with which of two transactions a message should commit."""
    with transaction.atomic(using="default"), transaction.atomic(using="other"):
        with pytest.raises(DatabaseChoiceError, match="using="):
            enqueue("where?")
        assert enqueue("there", using="other")._state.db == "other"


@pytest.mark.django_db
def test_an_unknown_alias_is_refused() -> None:
    """The message names the aliases that there are."""
    with pytest.raises(DatabaseChoiceError, match="default"):
        enqueue("x", using="nowhere")


def test_payloads_are_kept_as_exact_text(using: str) -> None:
    """Key order, big numbers, Unicode and Django's own types come back as they were written."""
    payload = {
        "b": 1,
        "a": [1.0, None, True, "ünï 🎉", 12345678901234567890123],
        "at": dt.datetime(2026, 3, 4, tzinfo=dt.timezone.utc),
        "sum": decimal.Decimal("0.10"),
        "id": uuid.UUID(int=7),
    }
    stored = enqueue("x", payload, headers={"z": "1", "ü": ["🎉"]}, using=using)
    row = messages(using).get()
    assert row.payload == stored.payload
    assert row.payload.startswith('{"b":1,"a":[1.0,null,true,"ünï 🎉",12345678901234567890123],')
    assert json.loads(row.payload)["sum"] == "0.10"
    assert row.headers == {"z": "1", "ü": ["🎉"]}
    (claimed,) = outbox.queue.using(using).claim()
    assert claimed.body == row.payload
    assert claimed.payload["a"][3] == "ünï 🎉"


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)

BAD = {
    "cannot be encoded": ({"payload": object()}, InvalidPayload, "JSON"),
    "tuple keys": ({"payload": {(1, 2): 3}}, InvalidPayload, "JSON"),
    "NaN": ({"payload": float("nan")}, InvalidPayload, "JSON"),
    "infinity": ({"payload": [float("inf")]}, InvalidPayload, "JSON"),
    "NUL": ({"payload": "a\x00b"}, InvalidPayload, "NUL"),
    "NUL after a backslash": ({"payload": "\\\x00"}, InvalidPayload, "NUL"),
    "lone surrogate": ({"payload": "\ud800"}, InvalidPayload, "surrogate"),
    "too large": ({"payload": "x" * (1024 * 1024)}, InvalidPayload, "MAX_PAYLOAD_BYTES"),
    "too deep": ({"payload": deep(101)}, InvalidPayload, "nested"),
    "far too deep": ({"payload": deep(100_000)}, InvalidPayload, "nested"),
    "circular": ({"payload": CIRCLE}, InvalidPayload, "JSON|nested"),
    "headers too deep": ({"headers": {"a": deep(30)}}, InvalidPayload, "headers.*nested"),
    "header NUL": ({"headers": {"a": "\x00"}}, InvalidPayload, "NUL"),
    "header name": ({"headers": {1: "a"}}, InvalidPayload, "Header names"),
    "headers no mapping": ({"headers": ["a"]}, InvalidPayload, "mapping"),
    "empty topic": ({"topic": ""}, InvalidName, "empty"),
    "topic no text": ({"topic": None}, InvalidName, "text"),
    "overlong topic": ({"topic": "x" * 201}, InvalidName, "200"),
    "control character in topic": ({"topic": "a\nb"}, InvalidName, "control"),
    "surrogate in topic": ({"topic": "a\udc00"}, InvalidName, "control"),
    "line separator in topic": ({"topic": "a\u2028b"}, InvalidName, "control"),
    "empty queue": ({"queue": ""}, InvalidName, "empty"),
    "overlong queue": ({"queue": "x" * 101}, InvalidName, "100"),
    "control character in queue": ({"queue": "\x7f"}, InvalidName, "control"),
    "queue that no option can name": ({"queue": "x,y"}, InvalidName, "--queues could not name it"),
    "queue with a space at its end": ({"queue": "mail "}, InvalidName, "--queues could not name it"),
    "correlation id": ({"correlation_id": "a\rb"}, InvalidName, "control"),
    "empty dedup_key": ({"dedup_key": ""}, InvalidName, "empty"),
    "naive due_at": ({"due_at": dt.datetime(2030, 1, 1)}, InvalidDueTime, "time zone"),
    "due_at no datetime": ({"due_at": "tomorrow"}, InvalidDueTime, "datetime"),
    "due_at past all time": (
        {"due_at": dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5)))},
        InvalidDueTime,
        "hundred years",
    ),
    "due_at before all time": (
        {"due_at": dt.datetime.min.replace(tzinfo=dt.timezone.utc), "expires_in": 5},
        InvalidDueTime,
        "hundred years",
    ),
    "a lazy text that raises": ({"payload": format_lazy("{missing}", other=1)}, InvalidPayload, "KeyError"),
    "negative delay": ({"delay": -1}, InvalidDueTime, "cannot be negative: -1"),
    "NaN delay": ({"delay": float("nan")}, InvalidDueTime, "delay"),
    "endless delay": ({"delay": 1e30}, InvalidDueTime, "range"),
    "long delay": ({"delay": dt.timedelta(days=99_999)}, InvalidDueTime, "hundred"),
    "delay no duration": ({"delay": "soon"}, InvalidDueTime, "seconds"),
    "delay and due_at": ({"delay": 1, "due_at": timezone.now()}, InvalidDueTime, "not both"),
    "expired at once": ({"expires_in": 0}, InvalidDueTime, "positive"),
    "priority": ({"priority": 7}, InvalidMessage, "priority"),
    "max_attempts": ({"max_attempts": 0}, InvalidMessage, "max_attempts"),
    "stream": ({"stream": "order-1"}, InvalidMessage, "not supported yet"),
    "destination": ({"destination": "billing"}, InvalidMessage, "not supported yet"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_before_anything_is_written(using: str, case: str) -> None:
    """A clear exception of ours, and the caller's transaction stays usable and commits."""
    options, error, words = BAD[case]
    with transaction.atomic(using=using):
        with pytest.raises(error, match=words) as caught:
            enqueue(**{"topic": "fine", "payload": 1, "using": using, **options})
        Order.objects.using(using).create(number=1)
        enqueue("after", using=using)
    assert isinstance(caught.value, ReliableMessagingError)
    assert Order.objects.using(using).count() == 1
    assert [m.topic for m in messages(using)] == ["after"]


def test_one_bad_message_of_many_stores_none(using: str) -> None:
    """enqueue_many checks all before it writes any."""
    with pytest.raises(InvalidName, match=r"Message 2 of 2: The topic is empty"):
        enqueue_many([OutgoingMessage(topic="fine"), OutgoingMessage(topic="")], using=using)
    with pytest.raises(InvalidMessage, match="put this one into a list"):
        enqueue_many(OutgoingMessage(topic="fine"), using=using)  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage, match="OutgoingMessage"):
        enqueue_many([{"topic": "fine"}], using=using)  # type: ignore[list-item]
    assert not messages(using).exists()


def test_many_are_stored_together_or_not_at_all(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also outside any transaction of the caller's: an error in the middle leaves nothing."""

    def break_off(*args: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(storing, "store_once", break_off)
    with pytest.raises(ZeroDivisionError):
        enqueue_many([OutgoingMessage(topic="a"), OutgoingMessage(topic="b", dedup_key="k")], using=using)
    assert not messages(using).exists()


def test_many_keep_their_order_and_their_times(using: str) -> None:
    """The rows come back in the order given, ids increasing, each with its own due time."""
    wanted = [OutgoingMessage(topic=f"t{n}", delay=n * 60 or None, expires_in=9) for n in range(5)]
    rows = enqueue_many(wanted, using=using)
    assert [row.topic for row in rows] == ["t0", "t1", "t2", "t3", "t4"]
    assert [row.pk for row in rows] == sorted(row.pk for row in rows)
    stored = {row.pk: row for row in messages(using)}
    for number, row in enumerate(rows):
        assert row.expires_at - row.due_at == dt.timedelta(seconds=9)
        assert (stored[row.pk].due_at, stored[row.pk].expires_at) == (row.due_at, row.expires_at)
        assert abs(row.due_at - row.created_at - dt.timedelta(minutes=number)) < dt.timedelta(seconds=1)


def test_nothing_to_enqueue_is_fine(using: str) -> None:
    """An empty list writes nothing and asks no questions."""
    assert enqueue_many([], using=using) == []


def test_due_at_is_an_instant(using: str) -> None:
    """A time in another zone is the same moment in the database."""
    moment = dt.datetime(2031, 5, 6, 12, tzinfo=dt.timezone(dt.timedelta(hours=9)))
    enqueue("x", due_at=moment, using=using)
    assert messages(using).get().due_at == moment


def test_defaults_come_from_the_handler_and_the_settings(using: str) -> None:
    """queue and max_attempts: what is given, else the handler's, else the settings'."""
    from reliable_messaging.registry import Handler, registry

    handler = Handler(topic="with.handler", function=print, queue="mail", max_attempts=9)
    registry.add(handler)
    try:
        row = enqueue("with.handler", using=using)
        assert (row.queue, row.max_attempts) == ("mail", 9)
        row = enqueue("with.handler", queue="other", max_attempts=2, using=using)
        assert (row.queue, row.max_attempts) == ("other", 2)
    finally:
        registry.remove(handler)
    with override_settings(RELIABLE_MESSAGING={"MAX_ATTEMPTS": 7, "MESSAGE_TTL": 60}):
        row = enqueue("unknown", using=using)
    assert (row.queue, row.max_attempts) == ("default", 7)
    assert row.expires_at - row.due_at < dt.timedelta(seconds=61)


def test_dedup_keeps_one_waiting_message(using: str) -> None:
    """The later payload and headers, the earlier due time, the greater priority; the same row."""
    first = enqueue("sync", 1, dedup_key="k", delay=600, priority=0, headers={"n": 1}, using=using)
    second = enqueue("sync", 2, dedup_key="k", delay=60, priority=-1, headers={"n": 2}, using=using)
    third = enqueue("sync", 3, dedup_key="k", delay=6000, priority=1, using=using)
    assert first.pk == second.pk == third.pk
    row = messages(using).get()
    assert (row.payload, row.headers, row.priority) == ("3", {}, 1)
    assert row.due_at == second.due_at < first.due_at
    assert third.payload == "3"


def test_dedup_without_a_delay_makes_it_due_now(using: str) -> None:
    """ "Now" is earlier than any delay; and the later expiry wins."""
    enqueue("sync", 1, dedup_key="k", delay=600, expires_in=10, using=using)
    row = enqueue("sync", 2, dedup_key="k", expires_in=9000, using=using)
    assert row.due_at - row.created_at < dt.timedelta(seconds=60)
    assert row.expires_at - row.created_at > dt.timedelta(seconds=8000)
    assert enqueue("sync", 3, dedup_key="k", using=using).expires_at is None


def test_a_claimed_message_no_longer_takes_duplicates(using: str) -> None:
    """Once it runs, a second enqueue is a second message; a retry does not take the slot back."""
    queue = outbox.queue.using(using)
    first = enqueue("sync", 1, dedup_key="k", using=using)
    (item,) = queue.claim()
    second = enqueue("sync", 2, dedup_key="k", using=using)
    queue.abandon([item], "again", delay=0)
    third = enqueue("sync", 3, dedup_key="k", using=using)
    assert first.pk != second.pk == third.pk
    assert messages(using).count() == 2


def test_cancelled_and_expired_messages_free_the_slot(using: str) -> None:
    """Every transition out of ready empties it."""
    first = enqueue("sync", dedup_key="k", using=using)
    outbox.cancel(first.pk, using=using)
    second = enqueue("sync", dedup_key="k", expires_in=0.001, delay=0, using=using)
    assert second.pk != first.pk
    from reliable_messaging import clock

    with clock.travel(dt.timedelta(seconds=5)):
        assert outbox.queue.using(using).expire() == 1
    assert enqueue("sync", dedup_key="k", using=using).pk not in (first.pk, second.pk)


def test_dedup_keys_that_differ_in_case_or_a_space_are_different(using: str) -> None:
    """And so are topics: no collation makes two messages one."""
    for topic in ("sync", "Sync", "sync "):
        for key in ("k", "K", "k "):
            enqueue(topic, dedup_key=key, using=using)
    assert messages(using).count() == 9
    assert messages(using).filter(topic="Sync").count() == 3


def test_dedup_in_bulk(using: str) -> None:
    """Two of the same key in one call end as one row, and both answers are that row."""
    rows = enqueue_many(
        [OutgoingMessage(topic="sync", payload=n, dedup_key=k) for n, k in enumerate("abab")], using=using
    )
    assert rows[0].pk == rows[2].pk != rows[1].pk == rows[3].pk
    assert {row.payload for row in messages(using)} == {"2", "3"}


def test_cancel_requeue_and_retry_now_say_whether_they_did(using: str) -> None:
    """True for what they changed, False otherwise; ids may be text."""
    row = enqueue("x", delay=600, using=using)
    assert outbox.retry_now(str(row.pk), using=using) is True
    assert outbox.retry_now(row.pk, using=using) is False
    assert outbox.requeue(row.pk, using=using) is False
    assert outbox.cancel(row.pk, using=using) is True
    assert outbox.cancel(row.pk, using=using) is False
    assert outbox.requeue(row.pk, using=using) is True


@pytest.mark.parametrize("wrong", [None, "nope", 7, OutboxMessage()])
def test_what_is_no_id_is_refused_with_a_word(using: str, wrong: Any) -> None:
    """Most easily the row itself is passed instead of its id."""
    for verb in (outbox.cancel, outbox.requeue, outbox.retry_now):
        with pytest.raises(ReliableMessagingError, match="pass an id, as a UUID or as text"):
            verb(wrong, using=using)


def test_aenqueue_commits_alone(using: str) -> None:
    """From async code, one or many."""

    async def work() -> None:
        await aenqueue("one", {"n": 1}, using=using)
        await aenqueue_many([OutgoingMessage(topic="two"), OutgoingMessage(topic="three")], using=using)
        from asgiref.sync import sync_to_async

        await sync_to_async(connections.close_all)()

    asyncio.run(work())
    assert {row.topic for row in messages(using)} == {"one", "two", "three"}
