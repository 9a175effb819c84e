"""The end of a worker: what is finished, what is given back, and who is not waited for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, transaction

from reliable_messaging import Message, OutgoingMessage, enqueue, enqueue_many
from reliable_messaging.exceptions import ReliableMessagingError
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.workers import OutboxWorker, WorkerOptions, run_worker_process
from tests.workers import eventually, handling


def rows(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


class Stubborn:
    """A handler that runs until it may go."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go = threading.Event()

    def __call__(self, message: Message) -> None:
        self.began.set()
        self.go.wait(20)


@pytest.fixture
def stubborn() -> Iterator[Stubborn]:
    stubborn = Stubborn()
    with handling("test.stubborn.one", stubborn, atomic=False):
        yield stubborn
        stubborn.go.set()


def start(using: str, *, grace: float) -> OutboxWorker:
    worker = OutboxWorker(WorkerOptions(database=using, concurrency=1, grace=timedelta(seconds=grace)))
    worker.start()
    worker.turn()
    return worker


def end(worker: OutboxWorker) -> None:
    eventually(lambda: not worker._pool.alive)
    worker.waiter.close()


def test_whoever_waits_is_told_for_what(
    using: str, stubborn: Stubborn, caplog: pytest.LogCaptureFixture
) -> None:
    """The grace may last: a worker with handlers at work says so when it is told to stop."""
    enqueue("test.stubborn.one", using=using)
    worker = start(using, grace=0)
    stubborn.began.wait(10)
    with caplog.at_level(logging.INFO, logger="reliable_messaging"):
        worker.shut_down()
        stubborn.go.set()
        end(worker)
        idle = start(using, grace=0)
        idle.shut_down()
        end(idle)
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "worker stopping" in line] == [
        f"worker stopping id={worker.id} running=1 grace=0.000"
    ]


def test_what_outlives_the_grace_goes_back(using: str, stubborn: Stubborn) -> None:
    """Its handler cannot be ended, but its message is released, and charged with nothing."""
    enqueue("test.stubborn.one", using=using)
    worker = start(using, grace=0)
    assert stubborn.began.wait(20)
    assert worker.shut_down() is False
    stored = rows(using).get()
    assert (stored.status, stored.failures, stored.crashes) == (Status.READY, 0, 0)
    stubborn.go.set()
    end(worker)


def test_what_has_not_begun_is_not_begun_any_more(using: str, stubborn: Stubborn) -> None:
    """Its thread comes free within the grace: the next goes back instead of being run."""
    enqueue_many([OutgoingMessage(topic="test.stubborn.one")] * 2, using=using)
    ran: list[Message] = []
    enqueue("test.next", using=using)
    with handling("test.next", ran.append, atomic=False):
        worker = start(using, grace=20)
        assert stubborn.began.wait(20)
        threading.Timer(0.2, stubborn.go.set).start()
        assert worker.shut_down() is True
    assert ran == []
    assert rows(using).get(topic="test.next").status == Status.READY
    assert rows(using).filter(status=Status.DONE).count() == 1
    end(worker)


def test_a_settlement_that_failed_at_the_end_is_not_released(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has run: released, it would run again at once. Its lease ends instead."""
    enqueue("test.ran", using=using)
    with handling("test.ran", lambda message: None, atomic=False):
        worker = start(using, grace=5)
        eventually(lambda: len(worker.flights.landed()) == 1)

        def away(settlements: Any) -> Any:
            raise OperationalError("away")

        monkeypatch.setattr(worker._settling.queue, "settle", away)
        monkeypatch.setattr(worker._settling.queue, "settle_unless_locked", away)
        worker.shut_down()
    assert rows(using).get().status == Status.CLAIMED
    end(worker)


def test_a_worker_inside_a_transaction_is_refused(using: str) -> None:
    """Its threads could not see what that transaction wrote, and would wait for its locks."""
    with transaction.atomic(using=using), pytest.raises(ReliableMessagingError, match="TestCase"):
        run_worker_process(WorkerOptions(database=using, burst=True))


def test_a_task_that_breaks_does_not_cost_its_thread(using: str) -> None:
    """Whatever it raises: with each lost thread the worker would do less, and in the end nothing."""
    worker = OutboxWorker(WorkerOptions(database=using, concurrency=1))
    done: list[float] = []

    def broken(_: object) -> None:
        raise SystemExit

    worker._pool.start()
    worker._pool.submit(broken)
    worker._pool.submit(lambda _: done.append(time.monotonic()))
    worker._pool.close()
    end(worker)
    assert len(done) == 1
