"""What the renewal thread makes of claims that are gone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from reliable_messaging import Message, enqueue, outbox
from reliable_messaging.models import OutboxMessage, Worker
from reliable_messaging.workers.flights import Flights
from reliable_messaging.workers.heartbeat import Heartbeat
from reliable_messaging.workers.session import SessionLimits
from tests.workers import eventually

LEASE = timedelta(minutes=1)


def reported(caplog: pytest.LogCaptureFixture) -> list[UUID]:
    return [r.rm["id"] for r in caplog.records if r.getMessage().startswith("claim lost")]  # type: ignore[attr-defined]


def make_heartbeat(queue: Any, flights: Flights, *, lease: timedelta = LEASE) -> Heartbeat:
    return Heartbeat(
        worker_id=uuid4(),
        queue=queue,
        flights=flights,
        limits=SessionLimits(lease=lease, idle_in_transaction=lease),
        queues=None,
    )


@pytest.mark.parametrize("settled", [True, False])
def test_only_what_is_still_in_the_air_is_lost(
    using: str, settled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Settled by a handler thread just before the renewal: no alarm. Taken by another worker: one."""
    enqueue("test.effect", 1, using=using)
    queue = outbox.queue.using(using)
    flights = Flights(wake=lambda: None, stopping=lambda: False)
    (message,) = queue.claim(lease=LEASE)
    flights.take_off([message], leased_at=0.0)

    def renew(messages: Sequence[Message], **options: Any) -> list[Message]:
        if settled:
            queue.ack([message])
            flights.land([message], [])
        else:
            OutboxMessage._base_manager.using(using).update(owner_token=uuid4())
        return queue.renew(messages, **options)

    heartbeat = make_heartbeat(SimpleNamespace(alias=using, renew=renew), flights)
    with caplog.at_level(logging.WARNING, "reliable_messaging"):
        heartbeat.beat()
    assert reported(caplog) == ([] if settled else [message.id])
    assert flights.messages() == []


def test_renewals_go_on_when_the_wall_clock_is_set_back(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where time-outs of locks go by that clock, they do not come then; no renewal may wait for one."""
    wait = threading.Event.wait
    monkeypatch.setattr(threading.Event, "wait", lambda self, timeout=None: wait(self))
    flights = Flights(wake=lambda: None, stopping=lambda: False)
    heartbeat = make_heartbeat(outbox.queue.using(using), flights, lease=timedelta(seconds=1))
    seen: set[datetime] = set()

    def has_beaten_thrice() -> bool:
        seen.update(Worker._base_manager.using(using).values_list("heartbeat_at", flat=True))
        return len(seen) >= 3

    heartbeat.start()
    try:
        eventually(has_beaten_thrice, seconds=10)
    finally:
        heartbeat.stop()
    assert not Worker._base_manager.using(using).exists()
