"""Handlers that run under a lease: alone in the world, and not inside anybody's transaction."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError

from reliable_messaging import Message, OutgoingMessage, clock, enqueue, enqueue_many, leases, with_lease
from reliable_messaging.leases import table
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.testing import run_due
from tests.testapp.models import Effect
from tests.workers import handling, run_worker

TOPIC = "test.leased"
NAME = "leased-handler"


def messages(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def leased(using: str, function: Any, **options: Any) -> Any:
    """The function as a decorated handler."""
    return with_lease(NAME, using=using, **options)(function)


@pytest.mark.parametrize("atomic", [True, False])
def test_messages_run_one_at_a_time(using: str, atomic: bool) -> None:
    """On four threads, ten messages of a handler under a lease never run two at a time, and each has a
    token of its own."""
    running, most, tokens = [], [], []

    def work(message: Message) -> None:
        running.append(1)
        most.append(len(running))
        held = leases.current(NAME, using=using)
        assert held is not None
        tokens.append(held.token)
        threading.Event().wait(0.005)
        Effect.objects.using(using).create(name=message.body)
        running.pop()

    enqueue_many([OutgoingMessage(topic=TOPIC, payload=n) for n in range(10)], using=using)
    with handling(TOPIC, leased(using, work, wait=20), atomic=atomic):
        run_worker(using, until=lambda: messages(using).filter(status=Status.DONE).count() == 10)
    assert max(most) == 1
    assert sorted(tokens) == list(range(1, 11))
    assert Effect.objects.using(using).count() == 10
    assert leases.holder(NAME, using=using) is None


@pytest.mark.parametrize("atomic", [True, False])
def test_a_message_without_the_lease_waits_and_is_charged_nothing(using: str, atomic: bool) -> None:
    """No longer than the holder has it, or five seconds."""
    other = leases.acquire(NAME, duration=600, using=using)
    assert other is not None
    row = enqueue(TOPIC, using=using)
    with handling(TOPIC, leased(using, lambda message: None), atomic=atomic):
        run_worker(using)
        row.refresh_from_db()
        assert (row.status, row.attempts) == (Status.READY, 1)
        assert (row.failures, row.transient_failures, row.crashes) == (0, 0, 0)
        assert timedelta(seconds=3) < row.due_at - clock.read(using) <= timedelta(seconds=5)
        other.release()
        with clock.travel(timedelta(seconds=6)):
            run_worker(using)
    row.refresh_from_db()
    assert row.status == Status.DONE


def test_an_atomic_handler_that_lost_its_lease_is_undone(using: str) -> None:
    """It is asked before the commit; the message is tried again as after trouble of the infrastructure."""

    def work(message: Message) -> None:
        Effect.objects.using(using).create(name="work")
        held = leases.current(NAME, using=using)
        assert held is not None
        held.lost.set()

    row = enqueue(TOPIC, using=using)
    with handling(TOPIC, leased(using, work)):
        run_worker(using)
    row.refresh_from_db()
    assert not Effect.objects.using(using).exists()
    assert (row.status, row.failures, row.transient_failures) == (Status.READY, 0, 1)
    assert "LeaseLost" in row.last_error


def test_a_leased_handler_joins_no_chunk(using: str) -> None:
    """Its lease would be held while others run. Each of its messages commits alone."""
    seen = []

    def work(message: Message) -> None:
        seen.append(leases.current(NAME, using=using))

    enqueue_many([OutgoingMessage(topic=TOPIC) for _ in range(3)], using=using)
    enqueue_many([OutgoingMessage(topic="test.plain") for _ in range(3)], using=using)
    plain: list[Any] = []
    with (
        handling(TOPIC, leased(using, work)),
        handling("test.plain", lambda message: plain.append(leases.current(NAME, using=using))),
    ):
        run_worker(using, concurrency=1)
    assert None not in seen
    assert plain == [None] * 3


def test_a_lease_that_cannot_be_asked_for_charges_nobody(
    using: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The database is away, which is not the message's fault: it rests."""

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise DatabaseError("gone")

    monkeypatch.setattr(table, "take", fail)
    row = enqueue(TOPIC, using=using)
    with handling(TOPIC, leased(using, lambda message: None)):
        run_worker(using)
    row.refresh_from_db()
    assert (row.status, row.failures, row.transient_failures) == (Status.READY, 0, 0)
    assert "lease not taken" in caplog.text


def test_a_lease_on_a_database_that_is_not_there_is_the_messages_fault(using: str) -> None:
    """It is charged, and goes dead in the end; it does not stay in the hands of the worker for ever."""
    row = enqueue(TOPIC, using=using)
    with handling(TOPIC, with_lease(NAME, using="typo")(lambda message: None)):
        run_worker(using)
    row.refresh_from_db()
    assert (row.status, row.failures) == (Status.READY, 1)
    assert "typo" in row.last_error


def test_run_due_takes_the_lease_too(using: str) -> None:
    """Tests of a project run handlers as a worker does."""
    tokens = []

    def work(message: Message) -> None:
        held = leases.current(NAME, using=using)
        assert held is not None
        tokens.append(held.token)

    row = enqueue(TOPIC, using=using)
    with handling(TOPIC, leased(using, work)):
        other = leases.acquire(NAME, using=using)
        assert other is not None
        assert len(run_due(using=using)) == 1
        assert tokens == []
        other.release()
        with clock.travel(timedelta(seconds=6)):
            run_due(using=using)
    row.refresh_from_db()
    assert tokens == [2]
    assert row.status == Status.DONE
