"""Settling what has landed, when something about it goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError

from reliable_messaging import OutgoingMessage, enqueue_many, outbox
from reliable_messaging.message import Message
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.workers.flights import Flights
from reliable_messaging.workers.settling import Settling
from reliable_messaging.workqueue import Ack, Release, Settlement


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
        real = self.queue.settle

        def settle(settlements: Any) -> list[Message]:
            if refused(settlements):
                raise error
            return real(settlements)

        self.queue.settle = settle  # type: ignore[method-assign]

    def statuses(self) -> list[int]:
        rows = OutboxMessage._base_manager.using(self.using).order_by("payload")
        return list(rows.values_list("status", flat=True))


def has_second(settlements: list[Settlement]) -> bool:
    return any(settlement.item.payload == 1 for settlement in settlements)


def test_what_cannot_be_settled_now_waits_and_holds_up_nobody(using: str) -> None:
    """Somebody's lock is in the way of one: its neighbours are settled, it stays, and it is not dead.
    The loop hears of it, and pauses."""
    landed = Landed(using)
    tries = iter([True] * 2)
    landed.refuse(OperationalError("lock timeout"), lambda s: has_second(s) and next(tries, False))
    with pytest.raises(OperationalError):
        landed.settling.flush()
    assert landed.statuses() == [Status.DONE, Status.CLAIMED, Status.DONE]
    assert [s.item.payload for s in landed.flights.landed()] == [1]
    assert [m.payload for m in landed.flights.messages()] == [1]
    landed.settling.flush()
    assert landed.statuses() == [Status.DONE] * 3
    assert not len(landed.flights)


def test_what_can_never_be_settled_goes_dead_alone(using: str) -> None:
    """Kept claimed for ever, it would be a message that nobody ever hears of again."""
    landed = Landed(using)
    landed.refuse(ValueError("cannot be written"), lambda s: has_second(s) and isinstance(s[-1], Ack))
    landed.settling.flush()
    assert landed.statuses() == [Status.DONE, Status.DEAD, Status.DONE]
    assert not len(landed.flights)


def test_a_lost_settlement_is_reported_and_forgotten(using: str, caplog: pytest.LogCaptureFixture) -> None:
    """Someone else has the message: a line in the log, and no second try."""
    landed = Landed(using)
    landed.queue.release(landed.messages[:1])
    landed.settling.flush()
    assert [r.getMessage()[:10] for r in caplog.records] == ["claim lost"]
    assert not len(landed.flights)
    assert landed.statuses() == [Status.READY, Status.DONE, Status.DONE]


def test_nothing_is_forgotten_before_it_is_committed(using: str) -> None:
    """The database is away: all of it still waits, and goes on being renewed."""
    landed = Landed(using)
    landed.refuse(OperationalError("away"), lambda s: True)
    with pytest.raises(OperationalError):
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
