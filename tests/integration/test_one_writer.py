"""Where the database has a single write lock: a chunk holds it, and nobody else can renew meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from reliable_messaging import Message, clock, enqueue, outbox
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.workers import OutboxWorker, WorkerOptions
from tests.tables import wipe
from tests.workers import eventually, handling


@pytest.fixture
def one_writer(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """SQLite, with real commits."""
    with django_db_blocker.unblock():
        yield "default"
        wipe("default")


def rows(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def test_a_long_chunk_keeps_what_runs_beside_it(one_writer: str) -> None:
    """It takes five leases. What this process has claimed besides is renewed before the commit: after
    it, another worker could reap at once."""
    go = threading.Event()
    enqueue("test.long", using=one_writer)
    enqueue("test.beside", using=one_writer)
    worker = OutboxWorker(WorkerOptions(database=one_writer, concurrency=2, lease=timedelta(seconds=60)))
    worker.start()
    with ExitStack() as stack:
        stack.enter_context(
            handling("test.long", lambda message: stack.enter_context(clock.travel(timedelta(minutes=5))))
        )
        stack.enter_context(handling("test.beside", lambda message: go.wait(20), atomic=False))
        try:
            worker.turn()
            eventually(lambda: rows(one_writer).get(topic="test.long").status == Status.DONE)
            assert outbox.queue.using(one_writer).reap() == 0
        finally:
            go.set()
            worker.shut_down()
            worker.waiter.close()
    assert rows(one_writer).get(topic="test.beside").crashes == 0


def test_the_watchdog_knows_who_holds_the_write_lock(one_writer: str) -> None:
    """While a chunk of this process does, a missed renewal is no reason to end it: nobody could have
    claimed anything. Afterwards it is."""
    enqueue("test.chunk", using=one_writer)
    held: list[bool] = []
    worker = OutboxWorker(WorkerOptions(database=one_writer))

    def work(message: Message) -> None:
        held.append(worker._writer.locked())

    worker.start()
    with handling("test.chunk", work):
        try:
            worker.turn()
            eventually(lambda: bool(held) and not worker.flights.active)
            eventually(lambda: not worker._writer.locked())
        finally:
            worker.shut_down()
            worker.waiter.close()
    assert held == [True]
