"""A worker whose database is away, or slow to answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from reliable_messaging import Message, OutgoingMessage, enqueue_many
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.workers import OutboxWorker, WorkerOptions
from reliable_messaging.workers.settling import Settling
from reliable_messaging.workqueue import Ack
from tests.testapp.models import Effect
from tests.workers import run_worker

COUNT = 10


class Scene:
    """A worker that nobody started, with messages that it has claimed."""

    def __init__(self, using: str) -> None:
        enqueue_many([OutgoingMessage(topic="test.effect", payload=n) for n in range(COUNT)], using=using)
        self.worker = OutboxWorker(WorkerOptions(database=using))
        self.queue, self.flights = self.worker.queue, self.worker.flights
        self.settling = Settling(queue=self.queue, flights=self.flights)
        self.messages: list[Message] = self.queue.claim(limit=COUNT)
        self.flights.take_off(self.messages, leased_at=0.0)

    def land(self) -> None:
        self.flights.land(self.messages, [Ack(item=message) for message in self.messages])

    def done(self) -> int:
        rows = OutboxMessage._base_manager.using(self.queue.alias)
        return rows.filter(status=Status.DONE).count()


@pytest.fixture
def scene(using: str) -> Any:
    made = Scene(using)
    yield made
    made.worker.waiter.close()


def test_settling_does_not_hammer_a_database_that_is_away(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much waits to be settled: two new connections are tried, and all of it waits on."""
    scene.land()
    connection = connections[scene.queue.alias]
    connection.close()
    tries: list[int] = []

    def refuse() -> None:
        tries.append(1)
        raise OperationalError("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "connect", refuse)
        with pytest.raises(OperationalError, match="refused"):
            scene.settling.flush()
    assert len(tries) <= 2
    assert len(scene.flights.landed()) == COUNT
    scene.settling.flush()
    assert scene.done() == COUNT


def test_one_that_somebody_has_locked_keeps_nobody_waiting(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error with the connection still there is that one's own: the others are settled."""
    scene.land()
    settle, alone, locked = scene.queue.settle, scene.queue.settle_unless_locked, scene.messages[3]

    def refuse(settlements: Any) -> None:
        if any(settlement.item is locked for settlement in settlements):
            raise OperationalError("lock timeout")

    monkeypatch.setattr(scene.queue, "settle", lambda s: refuse(s) or settle(s))
    monkeypatch.setattr(scene.queue, "settle_unless_locked", lambda s: refuse([s]) or alone(s))
    scene.settling.flush()
    assert scene.done() == COUNT - 1
    assert [settlement.item for settlement in scene.flights.landed()] == [locked]


def test_handlers_that_cannot_connect_make_no_busy_loop(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claiming thread still can. Nothing is started, nobody is charged, and it does not go through
    the backlog: each of four threads tries once, and again after a quarter, a half, and a second."""
    topics = ["fault.effect", "fault.loose"] * 200
    enqueue_many([OutgoingMessage(topic=topic, payload={"number": 1}) for topic in topics], using=using)
    tries: list[int] = []
    real = BaseDatabaseWrapper.connect

    def refuse(connection: Any) -> Any:
        if threading.current_thread().name.startswith("handler"):
            tries.append(1)
            raise OperationalError("too many connections")
        return real(connection)

    with monkeypatch.context() as patch:
        patch.setattr(BaseDatabaseWrapper, "connect", refuse)
        until = time.monotonic() + 1.5
        run_worker(using, batch_size=10, until=lambda: time.monotonic() > until)
    rows = OutboxMessage._base_manager.using(using)
    assert rows.filter(attempts=0).count() > len(topics) / 2
    assert len(tries) <= 4 * 4
    assert set(rows.values_list("status", "transient_failures")) == {(Status.READY, 0)}
    assert not Effect.objects.using(using).exists()


@pytest.mark.parametrize("settled", [True, False])
def test_a_message_settled_during_a_heartbeat_is_not_called_lost(
    scene: Scene, settled: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its row is no longer claimed when the renewal looks. That is our own doing, and no loss."""
    renew: Callable[..., Any] = scene.queue.renew

    def settle_first(items: Any, **options: Any) -> Any:
        if settled:
            scene.land()
            scene.settling.flush()
        else:
            scene.queue.release(scene.messages)
        return renew(items, **options)

    monkeypatch.setattr(scene.queue, "renew", settle_first)
    scene.worker._heartbeat.beat()
    lost = [record for record in caplog.records if record.getMessage().startswith("claim lost")]
    assert len(lost) == (0 if settled else COUNT)
