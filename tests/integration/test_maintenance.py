"""Reaping, expiring and purging: none of them stops a worker when it fails."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections

from reliable_messaging import Message, OutgoingMessage, clock, enqueue_many, outbox
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.registry import DEAD_LETTER_PREFIX
from reliable_messaging.workers.maintenance import SHORTEST_REST, Maintenance
from reliable_messaging.workqueue import Horizon, sweep
from tests.workers import handling, run_worker

STEPS = ["reap", "expire", "purge"]


def break_step(name: str, using: str, monkeypatch: pytest.MonkeyPatch, calls: list[int]) -> None:
    """As a foreign key on the messages would, or a role that may not delete."""

    def refuse(*args: Any, **options: Any) -> Any:
        calls.append(1)
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT 1 FROM nowhere")

    monkeypatch.setattr(sweep, name, refuse)


def test_dead_letters_of_large_messages_are_written(using: str) -> None:
    """A hundred of them at once are more than MariaDB takes as one statement. Refused, the same messages
    would be expired for ever, in vain."""
    count = sweep.BATCH_WITH_PAYLOAD
    large = OutgoingMessage(topic="test.large", payload="a" * 200_000, expires_in=10)
    for _ in range(0, count, 20):
        enqueue_many([large] * 20, using=using)
    with handling(DEAD_LETTER_PREFIX + "test.large", print), clock.travel(timedelta(seconds=11)):
        assert outbox.queue.using(using).expire() == count
    topics = OutboxMessage._base_manager.using(using).values_list("topic", flat=True)
    assert Counter(topics) == {"test.large": count, DEAD_LETTER_PREFIX + "test.large": count}


def test_a_purge_that_fails_stops_no_work(
    using: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would fail in the same way at every look, on every worker, also on one that was just started."""
    calls: list[int] = []
    break_step("purge", using, monkeypatch, calls)
    enqueue_many([OutgoingMessage(topic="test.work", payload=n) for n in range(5)], using=using)
    ran: list[Message] = []
    with caplog.at_level(logging.ERROR), handling("test.work", ran.append, atomic=False):
        run_worker(using)
    assert len(ran) == 5
    assert OutboxMessage._base_manager.using(using).filter(status=Status.DONE).count() == 5
    told = [record.getMessage() for record in caplog.records if "step=purge" in record.getMessage()]
    assert len(told) == len(calls) == 1
    assert "nowhere" in told[0]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_failed_rests(using: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on meanwhile; after a while it is tried again."""
    calls: list[int] = []
    break_step(step, using, monkeypatch, calls)
    maintenance = Maintenance(queue=outbox.queue.using(using))
    overdue = Horizon(lease_ended=True, expiry_passed=True)
    for _ in range(3):
        maintenance.run(overdue)
    assert len(calls) == 1
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now + SHORTEST_REST)
    maintenance.run(overdue)
    assert len(calls) == 2


def test_an_outage_is_no_fault_of_the_step(row_locking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop hears of it, and waits for the database."""

    def go_away(*args: Any, **options: Any) -> Any:
        connections[row_locking].close()
        raise OperationalError("the server closed the connection unexpectedly")

    monkeypatch.setattr(sweep, "purge", go_away)
    maintenance = Maintenance(queue=outbox.queue.using(row_locking))
    with pytest.raises(OperationalError):
        maintenance.run(Horizon())
