"""Settling what has landed, when something about it goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, transaction

from reliable_messaging import OutgoingMessage, clock, enqueue_many, outbox
from reliable_messaging.message import Message
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.report import ErrorReport, FailureKind
from reliable_messaging.workers import OutboxWorker, WorkerOptions
from reliable_messaging.workers.flights import Flights
from reliable_messaging.workers.settling import Settling
from reliable_messaging.workqueue import Abandon, Ack, Release, Settlement
from tests.sessions import in_session


class Landed:
    """Three messages that have run, and a queue that may refuse some of what is to be settled."""

    def __init__(self, using: str) -> None:
        enqueue_many([OutgoingMessage(topic="x", payload=n) for n in range(3)], using=using)
        self.using = using
        self.queue = outbox.queue.using(using)
        self.messages = self.queue.claim(limit=3)
        self.flights = Flights(wake=lambda: None, stopping=lambda: False)
        self.flights.take_off(self.messages, leased_at=0)
        self.flights.land(self.messages, [Ack(item=message) for message in self.messages])
        self.settling = Settling(queue=self.queue, flights=self.flights)

    def refuse(self, error: Exception, refused: Callable[[list[Settlement]], bool]) -> None:
        together, alone = self.queue.settle, self.queue.settle_unless_locked

        def settle(settlements: Any) -> list[Message]:
            if refused(settlements):
                raise error
            return together(settlements)

        def settle_alone(settlement: Settlement) -> list[Message] | None:
            if refused([settlement]):
                raise error
            return alone(settlement)

        self.queue.settle = settle  # type: ignore[method-assign]
        self.queue.settle_unless_locked = settle_alone  # type: ignore[method-assign]

    def statuses(self) -> list[int]:
        rows = OutboxMessage._base_manager.using(self.using).order_by("payload")
        return list(rows.values_list("status", flat=True))


def raising(error: Exception) -> Callable[..., Any]:
    def refuse(*args: Any) -> Any:
        raise error

    return refuse


def has_second(settlements: list[Settlement]) -> bool:
    return any(settlement.item.payload == 1 for settlement in settlements)


def test_what_cannot_be_settled_now_waits_and_holds_up_nobody(using: str) -> None:
    """Somebody's lock is in the way of one: its neighbours are settled, it stays, and it is not dead."""
    landed = Landed(using)
    tries = iter([True] * 2)
    landed.refuse(OperationalError("lock timeout"), lambda s: has_second(s) and next(tries, False))
    landed.settling.flush()
    assert landed.statuses() == [Status.DONE, Status.CLAIMED, Status.DONE]
    assert [s.item.payload for s in landed.flights.landed()] == [1]
    assert [m.payload for m in landed.flights.messages()] == [1]
    landed.settling.try_again(now=True)
    assert landed.statuses() == [Status.DONE] * 3
    assert not len(landed.flights)


def test_what_was_set_aside_travels_with_nothing_else(
    using: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the others it would fail for them all. It has a time of its own, which grows, and until then it
    is no reason for a turn."""
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    landed = Landed(using)
    landed.refuse(OperationalError("lock timeout"), has_second)
    landed.settling.flush()
    for wait in (0.5, 1.0, 2.0):
        assert landed.settling.begin() == []
        assert not landed.settling.is_due()
        assert landed.settling.flush_by() == pytest.approx(now + wait)
        landed.settling.try_again()
        now += wait
        landed.settling.try_again()
    waits = [r.__dict__["rm"]["retry_in"] for r in caplog.records]
    assert waits == [0.5, 1.0, 2.0, 4.0]


def test_when_all_are_settled_alone_it_was_something_else(using: str) -> None:
    """A claim that travelled with them, say: only then is its error told."""
    landed = Landed(using)
    assert landed.settling.one_by_one(OperationalError()) is True
    landed = Landed(using)
    landed.refuse(OperationalError("lock timeout"), has_second)
    assert landed.settling.one_by_one(OperationalError()) is False


def test_who_has_locked_a_row_is_not_waited_for(row_locking: str) -> None:
    """Fifty that somebody has locked would take fifty times as long as the server waits."""
    landed = Landed(row_locking)
    locked, unlock = threading.Event(), threading.Event()

    def lock() -> None:
        with transaction.atomic(using=row_locking):
            rows = OutboxMessage._base_manager.using(row_locking)
            assert rows.select_for_update().get(pk=landed.messages[1].id)
            locked.set()
            unlock.wait(30)

    holder = in_session(lock)
    assert locked.wait(30)
    assert (
        landed.settling.one_by_one(OperationalError()) is False
    )  # it would hang here: no limit is set on this session
    assert landed.statuses() == [Status.DONE, Status.CLAIMED, Status.DONE]
    unlock.set()
    holder.result(timeout=30)
    landed.settling.try_again(now=True)
    assert landed.statuses() == [Status.DONE] * 3


def test_a_worker_does_not_reap_what_it_has_set_aside(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its row was locked, nobody could renew it, and its lease has ended: it is settled."""
    worker = OutboxWorker(WorkerOptions(database=using))
    enqueue_many([OutgoingMessage(topic="x")], using=using)
    (message,) = worker.queue.claim(lease=0)
    worker.flights.take_off([message], leased_at=0)
    worker.flights.land([message], [Ack(item=message)])
    with monkeypatch.context() as patch:
        for name in ("settle", "settle_unless_locked"):
            patch.setattr(worker.queue, name, raising(OperationalError("lock timeout")))
        worker._settling.flush()
    assert worker._settling.begin() == []
    worker._lookout.look()
    worker.waiter.close()
    row = OutboxMessage._base_manager.using(using).get()
    assert (row.status, row.crashes) == (Status.DONE, 0)


def test_what_can_never_be_settled_goes_dead_alone(using: str) -> None:
    """Kept claimed for ever, it would be a message that nobody ever hears of again."""
    landed = Landed(using)
    landed.refuse(ValueError("cannot be written"), lambda s: has_second(s) and isinstance(s[-1], Ack))
    landed.settling.flush()
    assert landed.statuses() == [Status.DONE, Status.DEAD, Status.DONE]
    assert not len(landed.flights)


def test_what_cannot_even_go_dead_harms_no_neighbour(using: str) -> None:
    """Its dead letter cannot be written, say: it waits, and the rest is settled."""
    landed = Landed(using)
    landed.refuse(ValueError("cannot be written"), has_second)
    landed.settling.flush()
    assert landed.statuses() == [Status.DONE, Status.CLAIMED, Status.DONE]
    assert landed.settling.begin() == []


def test_what_falls_due_again_is_told_of(using: str) -> None:
    """So that the worker looks in time: nobody else will wake it for its own retries."""
    landed = Landed(using)
    landed.flights.settled(landed.flights.landed())
    first, second, third = landed.messages
    landed.flights.take_off(landed.messages, leased_at=0)
    wait, later = timedelta(seconds=2), timedelta(seconds=3)
    error = ErrorReport.plain("E", "e", FailureKind.OWN)
    settlements = [
        Ack(item=first),
        Abandon(item=second, error=error, delay=wait),
        Release(item=third, delay=later),
    ]
    landed.flights.land(landed.messages, settlements)
    told: list[timedelta] = []
    landed.settling.on_delay = told.append
    landed.settling.flush()
    assert told == [wait, later]


def test_a_lost_settlement_is_reported_and_forgotten(using: str, caplog: pytest.LogCaptureFixture) -> None:
    """Someone else has the message: a line in the log, and no second try."""
    landed = Landed(using)
    landed.queue.release(landed.messages[:1])
    landed.settling.flush()
    assert [r.getMessage()[:10] for r in caplog.records] == ["claim lost"]
    assert not len(landed.flights)
    assert landed.statuses() == [Status.READY, Status.DONE, Status.DONE]


def test_nothing_is_forgotten_before_it_is_committed(using: str) -> None:
    """The database takes nothing now: all of it still waits, and goes on being renewed."""
    landed = Landed(using)
    landed.refuse(OperationalError("disk full"), lambda s: True)
    landed.settling.flush()
    assert len(landed.flights.landed()) == len(landed.flights.messages()) == 3
    assert landed.settling.released == 0


def test_the_released_are_counted(using: str) -> None:
    """For the last line in the log: what went back unrun."""
    landed = Landed(using)
    (message,) = landed.queue.claim() or [landed.messages[0]]
    landed.flights.settled(landed.flights.landed())
    landed.flights.take_off([message], leased_at=0)
    landed.flights.land([message], [Release(item=message)])
    landed.settling.flush()
    assert landed.settling.released == 1
