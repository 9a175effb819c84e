"""The heartbeat: what it keeps, what it notices, what it survives."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connections
from django.test import override_settings

from reliable_messaging import Message, enqueue, outbox
from reliable_messaging.models import OutboxMessage, Status, Worker
from reliable_messaging.session import SessionLimits
from reliable_messaging.workers import OutboxWorker, WorkerOptions
from reliable_messaging.workers.flights import Flights
from reliable_messaging.workers.heartbeat import Heartbeat
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


@pytest.fixture
def worker(using: str) -> Iterator[OutboxWorker]:
    """With a short lease; its heartbeat is started by the test, or beaten by hand."""
    worker = OutboxWorker(WorkerOptions(database=using, lease=timedelta(seconds=1)))
    yield worker
    if worker._heartbeat._thread.is_alive():
        worker._heartbeat.stop()
    worker.waiter.close()


def claim(worker: OutboxWorker) -> Message:
    enqueue("test.beat", using=worker.queue.alias)
    (message,) = worker.queue.claim(lease=60)
    worker.flights.take_off([message], leased_at=time.monotonic())
    boarded = worker.flights.boarding(message, unfenced=True)
    assert boarded is not None
    return boarded


def test_a_handler_whose_claim_was_lost_is_told(
    worker: OutboxWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """Another worker has it: should_stop turns true, and a line in the log says so, once."""
    message = claim(worker)
    worker._heartbeat.beat()
    assert not message.should_stop
    rows = OutboxMessage._base_manager.using(worker.queue.alias)
    rows.update(status=Status.READY, owner_token=None, leased_until=None)
    for _ in range(3):
        worker._heartbeat.beat()
    assert message.should_stop
    assert [r.getMessage()[:10] for r in caplog.records] == ["claim lost"]


def test_a_lease_is_counted_from_before_it_was_asked_for(
    worker: OutboxWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer takes its time: by then a part of the lease has passed on the database's clock."""
    claim(worker)
    monkeypatch.setattr(worker._heartbeat, "_touch", lambda in_flight: time.sleep(0.3))
    worker._heartbeat.beat()
    assert worker.flights.has_overdue(0.3)
    assert time.monotonic() - worker._heartbeat._last_beat > 0.3


def test_a_beat_without_an_answer_shows(worker: OutboxWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog asks how long the database has been silent; after an answer, it has not been."""
    go = threading.Event()
    real = worker._heartbeat._touch

    def touch(in_flight: int) -> None:
        go.wait(20)
        real(in_flight)

    monkeypatch.setattr(worker._heartbeat, "_touch", touch)
    assert worker._heartbeat.silent_for == 0
    worker._heartbeat.start()
    eventually(lambda: worker._heartbeat.silent_for > 0.2)
    go.set()
    eventually(lambda: worker._heartbeat.silent_for == 0)
    assert Worker._base_manager.using(worker.queue.alias).exists()


def test_a_connection_that_broke_between_two_beats_is_replaced(
    worker: OutboxWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django would keep it: every beat after that would fail, and every lease would end."""
    beats: list[int] = []
    broken: list[int] = []
    messages, touch = worker.flights.messages, worker._heartbeat._touch

    def break_connection() -> list[Message]:
        if beats and not broken:
            broken.append(1)
            connections[worker.queue.alias].connection.close()
        return messages()

    def count(in_flight: int) -> None:
        touch(in_flight)
        beats.append(1)

    monkeypatch.setattr(worker.flights, "messages", break_connection)
    monkeypatch.setattr(worker._heartbeat, "_touch", count)
    worker._heartbeat.start()
    eventually(lambda: len(beats) > 2, seconds=10)
    assert broken


def test_queries_of_beats_are_not_kept_under_debug(
    worker: OutboxWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django logs every query then: an idle worker would grow with each beat."""
    kept: list[int] = []
    real: Any = worker._heartbeat._touch

    def touch(in_flight: int) -> None:
        real(in_flight)
        kept.append(len(connections[worker.queue.alias].queries_log))

    monkeypatch.setattr(worker._heartbeat, "_touch", touch)
    monkeypatch.setattr(worker._heartbeat, "_interval", 0.01)
    with override_settings(DEBUG=True):
        worker._heartbeat.start()
        eventually(lambda: len(kept) > 20)
        worker._heartbeat.stop()
    assert max(kept) < 15, "more than a new connection and one beat ask"


def test_a_beat_makes_the_worker_known_again(worker: OutboxWorker) -> None:
    """Away for a day, its row was removed by another worker as stale."""
    rows = Worker._base_manager.using(worker.queue.alias)
    worker._heartbeat.beat()
    rows.all().delete()
    worker._heartbeat.beat()
    assert rows.count() == 1
