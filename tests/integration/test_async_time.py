"""Async handlers that are past their time, and the end of a worker that runs some."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from reliable_messaging import (
    Message,
    OutgoingMessage,
    enqueue,
    enqueue_many,
)
from reliable_messaging.models import Failure, OutboxMessage, Status
from reliable_messaging.workers import OutboxWorker, WorkerOptions
from tests.testapp.models import Effect
from tests.workers import eventually

from .coroutines import TOPIC, effects, go_on, loose, rows, working


@pytest.fixture
def worker(using: str) -> Iterator[OutboxWorker]:
    with working(using) as worker:
        yield worker


# Past its time


def failures(using: str, row: OutboxMessage) -> tuple[int, int, int]:
    stored = rows(using).get(pk=row.pk)
    return stored.status, stored.failures, stored.crashes


def traceback_of(using: str, row: OutboxMessage) -> str:
    return str(Failure._base_manager.using(using).get(item_id=row.pk).traceback)


TIMEOUT = timedelta(seconds=0.3)


async def wait_for_nothing() -> None:
    await asyncio.sleep(600)


def test_past_its_time_it_is_cancelled(using: str, worker: OutboxWorker) -> None:
    """One failure, that shows where it stood; it ended, so the worker goes on as it is."""
    seen: list[bool] = []

    async def work(message: Message) -> None:
        try:
            await wait_for_nothing()
        finally:
            seen.append(message.should_stop)

    row = enqueue(TOPIC, using=using, max_attempts=1)
    with loose(work, timeout=TIMEOUT), loose(lambda message: None, "test.plain"):
        go_on(worker, lambda: worker.finished)
        assert failures(using, row) == (Status.DEAD, 1, 0)
        assert seen == [True]
        assert "HandlerTimeout" in rows(using).get().last_error
        assert "wait_for_nothing" in traceback_of(using, row)
        assert not worker.must_be_replaced
        enqueue("test.plain", using=using)
        worker._lookout.look_at = 0
        go_on(worker, lambda: rows(using).get(topic="test.plain").status == Status.DONE)


def test_one_that_ignores_its_cancellation_costs_the_process(
    using: str, worker: OutboxWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One failure; beside it others come to their end; then the worker is to be replaced."""
    monkeypatch.setattr("reliable_messaging.workers.runs.LAST_CHANCE", 0.2)
    go = asyncio.Event()

    async def work(message: Message) -> None:
        while not go.is_set():
            try:
                await asyncio.wait_for(go.wait(), 600)
            except asyncio.CancelledError:
                pass

    async def other(message: Message) -> None:
        while not worker.runs.hung:
            await asyncio.sleep(0.01)

    row, beside = enqueue(TOPIC, using=using, max_attempts=1), enqueue("test.other", using=using)
    with loose(work, timeout=TIMEOUT), loose(other, "test.other"):
        go_on(worker, lambda: worker.finished)
        assert worker.must_be_replaced
        assert failures(using, row) == (Status.DEAD, 1, 0)
        assert failures(using, beside) == (Status.DONE, 0, 0)
        worker._coroutines._loop.call(go.set)
        eventually(lambda: not worker.runs.hung)


def test_one_that_never_ends_does_not_use_up_the_grace(using: str) -> None:
    """Nobody waits for it, nor for the threads on which it and others have made calls."""
    go = asyncio.Event()

    async def work(message: Message) -> None:
        await Effect.objects.using(message.using).acreate(name="before")
        while message.payload == 0 and not go.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                pass

    enqueue_many([OutgoingMessage(topic=TOPIC, payload=n) for n in range(4)], using=using)
    with loose(work, timeout=TIMEOUT):
        worker = start(using, grace=60)
        eventually(lambda: len(worker.runs.hung) == len(worker._coroutines._open) == 1)
        try:
            before = time.monotonic()
            assert worker.shut_down() is False
            assert time.monotonic() < before + 30
        finally:
            worker._coroutines._loop.call(go.set)
            eventually(lambda: not worker._alive)
            worker.waiter.close()


def test_one_that_blocks_the_loop_is_charged_alone(
    using: str, worker: OutboxWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its neighbours on the loop cannot go on: they go back, and are charged with nothing, though one of
    them is past its time before it is. The worker is to be replaced."""
    monkeypatch.setattr("reliable_messaging.workers.runs.LAST_CHANCE", 0.2)
    monkeypatch.setattr("reliable_messaging.workers.event_loop.BLOCKED_SECONDS", 0.5)
    go, began = threading.Event(), threading.Event()

    async def neighbour(message: Message) -> None:
        await asyncio.sleep(0.7)
        await asyncio.sleep(600)

    async def work(message: Message) -> None:
        await asyncio.sleep(0.1)
        began.set()
        go.wait(30)

    short = enqueue("test.short", using=using)
    long = enqueue("test.long", using=using)
    row = enqueue(TOPIC, using=using, max_attempts=1)
    with (
        loose(work, timeout=timedelta(seconds=2)),
        loose(neighbour, "test.short", timeout=timedelta(seconds=1)),
        loose(neighbour, "test.long", timeout=timedelta(seconds=60)),
    ):
        try:
            go_on(worker, began.is_set)
            go_on(worker, lambda: worker.finished)
            assert worker.must_be_replaced
            assert failures(using, row) == (Status.DEAD, 1, 0)
            assert failures(using, short) == (Status.READY, 0, 0)
            assert failures(using, long) == (Status.READY, 0, 0)
            assert "go.wait(30)" in traceback_of(using, row)
        finally:
            go.set()


@pytest.mark.parametrize("sensitive", [True, False])
def test_a_call_that_hangs_behind_a_cancelled_handler_costs_the_process(
    using: str, worker: OutboxWorker, monkeypatch: pytest.MonkeyPatch, sensitive: bool
) -> None:
    """The coroutine ends, but what it called on a thread does not: nobody else may be sent to that thread."""
    monkeypatch.setattr("reliable_messaging.workers.runs.LAST_CHANCE", 0.2)
    go = threading.Event()

    async def work(message: Message) -> None:
        call = (
            sync_to_async(go.wait) if message.payload == "sensitive" else partial(asyncio.to_thread, go.wait)
        )
        await call(30)  # type: ignore[operator]

    row = enqueue(TOPIC, "sensitive" if using == "default" else "", using=using, max_attempts=1)
    with loose(work, timeout=TIMEOUT):
        try:
            go_on(worker, lambda: worker.finished)
            assert worker.must_be_replaced
            assert failures(using, row) == (Status.DEAD, 1, 0)
        finally:
            go.set()
        eventually(lambda: not worker.runs.hung)
        assert not worker.must_be_replaced


# The end


def start(using: str, *, grace: float, **options: Any) -> OutboxWorker:
    worker = OutboxWorker(WorkerOptions(database=using, grace=timedelta(seconds=grace), **options))
    worker.start()
    worker.turn()
    return worker


def test_what_runs_may_finish_within_the_grace(using: str) -> None:
    """It is told to stop, and is waited for; what has not begun goes back."""
    began = threading.Event()

    async def work(message: Message) -> None:
        began.set()
        while not message.should_stop:
            await asyncio.sleep(0.01)
        await Effect.objects.using(message.using).acreate(name="last")

    enqueue_many([OutgoingMessage(topic=TOPIC)] * 2, using=using)
    with loose(work):
        worker = start(using, grace=20, async_concurrency=1)
        assert began.wait(20)
        assert worker.shut_down() is True
    assert effects(using) == ["last"]
    assert sorted(rows(using).values_list("status", "failures")) == [(Status.READY, 0), (Status.DONE, 0)]
    worker.waiter.close()


def test_what_outlives_the_grace_is_cancelled_and_goes_back(using: str) -> None:
    """Charged with nothing; its ``finally`` has run, and nothing keeps the process."""
    began, ended = threading.Event(), threading.Event()

    async def work(message: Message) -> None:
        began.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    enqueue(TOPIC, using=using)
    with loose(work):
        worker = start(using, grace=0)
        assert began.wait(20)
        assert worker.shut_down() is True
    assert ended.is_set()
    stored = rows(using).get()
    assert (stored.status, stored.failures, stored.crashes) == (Status.READY, 0, 0)
    worker.waiter.close()


@pytest.mark.parametrize("blocks", [False, True])
def test_what_outlives_even_that_goes_back(using: str, blocks: bool) -> None:
    """It swallows its cancellation, or blocks the loop: its message is released all the same."""
    began, go = threading.Event(), threading.Event()

    async def work(message: Message) -> None:
        began.set()
        if blocks:
            go.wait(30)
        while not go.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                pass

    enqueue(TOPIC, using=using)
    with loose(work):
        worker = start(using, grace=0)
        assert began.wait(20)
        before = time.monotonic()
        assert worker.shut_down() is False
        assert time.monotonic() < before + 15
        stored = rows(using).get()
        assert (stored.status, stored.failures, stored.crashes) == (Status.READY, 0, 0)
        go.set()
        eventually(lambda: not worker._alive)
    worker.waiter.close()


def test_what_waits_for_its_place_goes_back(using: str) -> None:
    """Told to stop, a worker gives back at once what no handler has begun."""
    go = asyncio.Event()
    ran: list[Any] = []

    async def work(message: Message) -> None:
        ran.append(message.payload)
        await go.wait()

    enqueue_many([OutgoingMessage(topic=TOPIC, payload=n) for n in range(5)], using=using)
    with loose(work):
        worker = start(using, grace=20, async_concurrency=1)
        eventually(lambda: ran == [0])
        worker.stop_flag.requested = True
        threading.Timer(0.2, lambda: worker._coroutines._loop.call(go.set)).start()
        assert worker.shut_down() is True
    assert ran == [0]
    assert rows(using).filter(status=Status.READY, failures=0).count() == 4
    worker.waiter.close()
