"""A worker with a hung handler: what else it may still do, and when it may be replaced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from reliable_messaging import Message, OutgoingMessage, clock, enqueue, enqueue_many
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.registry import Handler
from reliable_messaging.workers import OutboxWorker, WorkerOptions
from reliable_messaging.workers.runs import Runs
from tests.factories import MessageFactory
from tests.sessions import in_session
from tests.workers import eventually, handling

HANGS = "test.hanging"
TIMEOUT = timedelta(seconds=0.1)


def rows(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """Until it is set, hung handlers hang."""
    go = threading.Event()
    with handling(HANGS, lambda message: go.wait(30), atomic=False, timeout=TIMEOUT):
        yield go
        go.set()


def start(using: str, **options: Any) -> OutboxWorker:
    worker = OutboxWorker(WorkerOptions(database=using, grace=timedelta(seconds=60), **options))
    worker.start()
    worker.turn()
    eventually(lambda: bool(worker.runs.hung))
    return worker


def end(worker: OutboxWorker, go: threading.Event) -> None:
    go.set()
    worker.shut_down()
    eventually(lambda: not worker._pool.alive)
    worker.waiter.close()


def test_nothing_new_is_claimed(using: str, go: threading.Event) -> None:
    """The process is to end: what it claimed now, it would have to give back."""
    enqueue(HANGS, using=using)
    worker = start(using)
    try:
        enqueue("test.other", using=using)
        for _ in range(3):
            worker._lookout.look_at = 0
            worker.turn()
        assert worker._lookout.lanes
        assert rows(using).get(topic="test.other").attempts == 0
    finally:
        end(worker, go)


def test_what_has_not_begun_goes_back_at_once(using: str, go: threading.Event) -> None:
    """Claimed, and waiting for the very thread that hangs: another worker can take it now."""
    enqueue_many([OutgoingMessage(topic=HANGS), OutgoingMessage(topic="test.other")], using=using)
    worker = start(using, concurrency=1)
    try:
        for _ in range(3):
            worker.turn()
        waiting = rows(using).get(topic="test.other")
        assert (waiting.status, waiting.attempts, waiting.failures) == (Status.READY, 1, 0)
    finally:
        end(worker, go)


@pytest.mark.parametrize("atomic", [True, False])
def test_a_free_thread_does_not_begin_another_message(using: str, go: threading.Event, atomic: bool) -> None:
    """Also in the moment before the claiming thread has noticed."""
    ran: list[object] = []
    first = threading.Event()

    def work(message: Message) -> None:
        ran.append(message.payload)
        first.wait(20)

    enqueue(HANGS, using=using)
    enqueue_many([OutgoingMessage(topic="test.other", payload=n) for n in range(3)], using=using)
    with handling("test.other", work, atomic=atomic):
        worker = start(using, concurrency=2, chunk_size=1)
        try:
            eventually(lambda: bool(ran))
            first.set()
            eventually(lambda: worker.flights.active == 0)
            assert ran == [0]
        finally:
            first.set()
            end(worker, go)
    assert rows(using).filter(topic="test.other", status=Status.READY, failures=0).count() == 2


def test_the_worker_is_replaced_when_the_rest_is_done(
    using: str, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before; not when it was told to stop, and not when it has done what it was to do."""
    monkeypatch.setattr("reliable_messaging.workers.runs.LAST_CHANCE", 0)
    slow = threading.Event()
    with handling("test.slow.one", lambda message: slow.wait(20), atomic=False):
        enqueue_many([OutgoingMessage(topic=HANGS), OutgoingMessage(topic="test.slow.one")], using=using)
        worker = start(using, max_messages=5)
        try:
            worker.turn()
            assert worker.runs.hopeless
            assert not worker.finished
            slow.set()
            eventually(lambda: worker.turn() >= 0 and worker.finished)
            assert worker.must_be_replaced
            assert worker.remaining_options.max_messages == 3
            worker._claiming.claimed = 5
            assert not worker.must_be_replaced
            worker._claiming.claimed = 2
            worker.stop_flag.requested = True
            assert not worker.must_be_replaced
        finally:
            slow.set()
            end(worker, go)


def test_a_hung_handler_does_not_use_up_the_grace(using: str, go: threading.Event) -> None:
    """Nobody waits for what will never end."""
    enqueue(HANGS, using=using)
    worker = start(using)
    worker.turn()
    try:
        assert in_session(worker.shut_down).result(timeout=20) is False
    finally:
        go.set()
        eventually(lambda: not worker._pool.alive)
        worker.waiter.close()
    assert rows(using).get().failures == 1


def test_a_hung_handler_has_a_last_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told to stop, one that listens is back in a moment: only who is not costs the process."""
    runs, now = Runs(), clock.monotonic()
    runs.begin(MessageFactory(), Handler(topic="x", function=print, timeout=timedelta(seconds=10)))
    monkeypatch.setattr(clock, "monotonic", lambda: now + 11)
    assert len(runs.newly_hung()) == 1
    assert not runs.hopeless
    monkeypatch.setattr(clock, "monotonic", lambda: now + 13)
    assert runs.hopeless
