"""What the renewal thread makes of claims that are gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from reliable_messaging import Message, enqueue, outbox
from reliable_messaging.models import OutboxMessage
from reliable_messaging.workers.flights import Flights
from reliable_messaging.workers.heartbeat import Heartbeat
from reliable_messaging.workers.session import SessionLimits

LEASE = timedelta(minutes=1)


def reported(caplog: pytest.LogCaptureFixture) -> list[UUID]:
    return [r.rm["id"] for r in caplog.records if r.getMessage().startswith("claim lost")]  # type: ignore[attr-defined]


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

    stand_in: Any = SimpleNamespace(alias=using, renew=renew)
    heartbeat = Heartbeat(
        worker_id=uuid4(),
        queue=stand_in,
        flights=flights,
        limits=SessionLimits(lease=LEASE, idle_in_transaction=LEASE),
        queues=None,
    )
    with caplog.at_level(logging.WARNING, "reliable_messaging"):
        heartbeat.beat()
    assert reported(caplog) == ([] if settled else [message.id])
    assert flights.messages() == []


def test_a_beat_does_not_hide_that_a_running_handler_has_lost_its_claim(using: str) -> None:
    """The process has slept through the lease, and another worker has the message: the handler that still
    runs here is overdue after the beat as it was before, so that the watchdog ends it."""
    enqueue("test.loose", 1, using=using)
    queue = outbox.queue.using(using)
    flights = Flights(wake=lambda: None, stopping=lambda: False)
    (message,) = queue.claim(lease=LEASE)
    flights.take_off([message], leased_at=time.monotonic() - 2 * LEASE.total_seconds())
    assert flights.boarding(message, unfenced=True)
    OutboxMessage._base_manager.using(using).update(owner_token=uuid4())
    limits = SessionLimits(lease=LEASE, idle_in_transaction=LEASE)
    Heartbeat(worker_id=uuid4(), queue=queue, flights=flights, limits=limits, queues=None).beat()
    assert flights.has_overdue(LEASE.total_seconds())
