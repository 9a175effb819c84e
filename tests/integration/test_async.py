"""Async handlers: on an event loop, many at once, never atomic, and otherwise as any other."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections, transaction

from reliable_messaging import (
    DeadLetter,
    Message,
    OutgoingMessage,
    PermanentError,
    Retry,
    TransientError,
    aenqueue,
    enqueue,
    enqueue_many,
)
from reliable_messaging.models import Failure, OutboxMessage, Status
from reliable_messaging.registry import DEAD_LETTER_PREFIX
from reliable_messaging.workers import OutboxWorker, WorkerOptions
from tests.faults.forks import fork_and_return
from tests.testapp.models import Effect
from tests.workers import eventually, handling, run_worker

TOPIC = "test.async"


def rows(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def effects(using: str) -> list[str]:
    return sorted(Effect.objects.using(using).values_list("name", flat=True))


def loose(function: Callable[[Any], Any], topic: str = TOPIC, **options: Any) -> Any:
    return handling(topic, function, atomic=False, **options)


def run_one(using: str, function: Callable[[Any], Any], **options: Any) -> OutboxMessage:
    """One message through a worker; its row afterwards."""
    row = enqueue(TOPIC, using=using)
    with loose(function):
        run_worker(using, **options)
    return rows(using).get(pk=row.pk)  # type: ignore[no-any-return]


@pytest.fixture
def worker(using: str) -> Iterator[OutboxWorker]:
    worker = OutboxWorker(WorkerOptions(database=using, burst=True, grace=timedelta(seconds=5)))
    worker.start()
    yield worker
    worker.shut_down()
    eventually(lambda: not worker._alive)
    worker.waiter.close()


def go_on(worker: OutboxWorker, until: Callable[[], bool]) -> None:
    eventually(lambda: worker.turn() >= 0 and until())


# How it goes


def test_an_async_handler_is_awaited(using: str) -> None:
    """Its message is done, with what it returned."""

    async def work(message: Message) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"number": message.payload}

    row = enqueue(TOPIC, 7, using=using)
    with loose(work):
        run_worker(using)
    stored = rows(using).get(pk=row.pk)
    assert (stored.status, stored.attempts, stored.result) == (Status.DONE, 1, '{"number":7}')


class _Callable:
    async def __call__(self, message: Message) -> str:
        return "called"


async def _with_word(word: str, message: Message) -> str:
    return word


@pytest.mark.parametrize("function", [_Callable(), partial(_with_word, "called"), partial(_Callable())])
def test_whatever_is_called_to_be_awaited(using: str, function: Any) -> None:
    """An object with an async ``__call__``, a partial of either."""
    assert run_one(using, function).result == '"called"'


def test_sync_and_async_handlers_share_a_worker(using: str) -> None:
    """In one batch, atomic, non-atomic and async ones: each in its own way, each once."""

    async def work(message: Message) -> None:
        await Effect.objects.using(message.using).acreate(name=f"async {message.payload}")

    def plain(message: Message) -> None:
        Effect.objects.using(message.using).create(name=f"{message.topic} {message.payload}")

    topics = [TOPIC, "test.plain", "test.atomic"]
    enqueue_many([OutgoingMessage(topic=topic, payload=n) for n in range(4) for topic in topics], using=using)
    with loose(work), loose(plain, "test.plain"), handling("test.atomic", plain):
        run_worker(using)
    names = [f"{name} {n}" for n in range(4) for name in ("async", "test.plain", "test.atomic")]
    assert effects(using) == sorted(names)
    assert set(rows(using).values_list("status", "attempts")) == {(Status.DONE, 1)}


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (ValueError("no"), (Status.READY, 1, 0)),
        (Retry("later", after=600), (Status.READY, 1, 0)),
        (Retry("later", after=600, charge=False), (Status.READY, 0, 0)),
        (TransientError("away"), (Status.READY, 0, 1)),
        (TimeoutError(), (Status.READY, 0, 1)),
        (PermanentError("never"), (Status.DEAD, 1, 0)),
        (SystemExit(3), (Status.READY, 1, 0)),
        (KeyboardInterrupt(), (Status.READY, 1, 0)),
        (asyncio.CancelledError(), (Status.READY, 1, 0)),
        (GeneratorExit(), (Status.READY, 1, 0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_exception_is_an_outcome(
    using: str, error: BaseException, wanted: tuple[int, int, int]
) -> None:
    """As for sync handlers; none of them ends the event loop, and the next message is run there."""

    async def work(message: Message) -> None:
        await asyncio.sleep(0)
        raise error

    async def fine(message: Message) -> None: ...

    row = enqueue(TOPIC, using=using, delay=0)
    with loose(work, backoff=lambda n: timedelta(minutes=10)), loose(fine, "test.fine"):
        worker = OutboxWorker(WorkerOptions(database=using, burst=True))
        worker.start()
        try:
            go_on(worker, lambda: worker.finished)
            enqueue("test.fine", using=using)
            worker._lookout.look_at = 0
            go_on(worker, lambda: rows(using).get(topic="test.fine").status == Status.DONE)
        finally:
            worker.shut_down()
            worker.waiter.close()
    stored = rows(using).get(pk=row.pk)
    assert (stored.status, stored.failures, stored.transient_failures) == wanted


def test_a_handler_that_returns_what_never_ran_has_failed(using: str) -> None:
    """It forgot to await: none of those lines has run."""

    async def inner() -> None: ...

    async def work(message: Message) -> Any:
        return inner()

    assert "none of its lines has run" in run_one(using, work).last_error


def test_a_callback_for_dead_letters_may_be_async(using: str) -> None:
    """It gets the DeadLetter, as a sync one does."""
    told: list[DeadLetter] = []

    async def work(message: Message) -> None:
        raise PermanentError("never")

    async def on_dead(letter: DeadLetter) -> None:
        told.append(letter)

    enqueue(TOPIC, 5, using=using)
    with loose(work), loose(on_dead, DEAD_LETTER_PREFIX + TOPIC):
        run_worker(using)
    assert [(letter.message.payload, letter.error) for letter in told] == [
        (5, "reliable_messaging.exceptions.PermanentError: never")
    ]


def test_messages_that_it_enqueues_inherit_its_correlation_id(using: str) -> None:
    """Each its own, however many handlers take turns on the loop; also from tasks that it starts."""

    async def work(message: Message) -> None:
        await asyncio.sleep(0.01)
        await aenqueue("test.child", message.payload, using=message.using)
        await asyncio.create_task(aenqueue("test.child", message.payload, using=message.using))

    async def child(message: Message) -> None: ...

    parents = [enqueue(TOPIC, n, using=using, correlation_id=f"order {n}") for n in range(5)]
    with loose(work), loose(child, "test.child"):
        run_worker(using)
    for n, parent in enumerate(parents):
        found = rows(using).filter(topic="test.child", payload=str(n))
        assert set(found.values_list("correlation_id", "causation_id")) == {(f"order {n}", parent.pk)}
        assert found.count() == 2


def test_nothing_of_its_context_reaches_the_next(using: str) -> None:
    """Context variables end with the handler, also when the next waits for its place."""
    variable: ContextVar[str] = ContextVar("test_variable", default="nothing")
    seen: list[str] = []

    async def work(message: Message) -> None:
        seen.append(variable.get())
        variable.set("something")
        await asyncio.sleep(0)

    enqueue_many([OutgoingMessage(topic=TOPIC)] * 4, using=using)
    with loose(work):
        run_worker(using, async_concurrency=1)
    assert seen == ["nothing"] * 4


# How many


class _Crowd:
    """Counts how many are there at once."""

    def __init__(self, *, full: int) -> None:
        self.most = self.now = 0
        self._full = full

    async def __call__(self, message: Message) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(500):
            if self.most >= self._full:
                break
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.02)
        self.now -= 1


def test_many_wait_at_once(using: str) -> None:
    """As many as the option says, on two threads; never more."""
    enqueue_many([OutgoingMessage(topic=TOPIC)] * 80, using=using)
    crowd = _Crowd(full=50)
    with loose(crowd):
        run_worker(using, concurrency=2, async_concurrency=50)
    assert crowd.most == 50
    assert set(rows(using).values_list("status", "attempts")) == {(Status.DONE, 1)}


def test_those_that_wait_for_their_place_are_not_many(using: str, worker: OutboxWorker) -> None:
    """What one worker hoards, another cannot do: with all places taken, one good claim more at most."""
    go = asyncio.Event()

    async def work(message: Message) -> None:
        await go.wait()

    enqueue_many([OutgoingMessage(topic=TOPIC)] * 400, using=using)
    with loose(work):
        for _ in range(100):
            worker._lookout.look_at = 0
            worker.turn()
        size = worker._pace.claim_size()
        try:
            assert 100 <= worker.claimed <= 100 + 2 * size
            assert worker.claimed < 400
        finally:
            worker._coroutines._loop.call(go.set)
            go_on(worker, lambda: worker.finished)


def test_sync_handlers_are_claimed_beside_them(using: str, worker: OutboxWorker) -> None:
    """Coroutines that wait occupy no thread: they keep no sync message from being claimed."""
    go = asyncio.Event()

    async def work(message: Message) -> None:
        await go.wait()

    enqueue_many([OutgoingMessage(topic=TOPIC)] * 60, using=using)
    with loose(work), loose(lambda message: None, "test.plain"):
        go_on(worker, lambda: worker.claimed == 60)
        enqueue("test.plain", using=using)
        worker._lookout.look_at = 0
        go_on(worker, lambda: rows(using).get(topic="test.plain").status == Status.DONE)
        assert rows(using).filter(topic=TOPIC, status=Status.CLAIMED).count() == 60
        worker._coroutines._loop.call(go.set)
        go_on(worker, lambda: worker.finished)


def test_a_worker_without_async_handlers_has_no_event_loop(using: str, worker: OutboxWorker) -> None:
    """It pays nothing for what it does not use."""
    enqueue("test.plain", using=using)
    with loose(lambda message: None, "test.plain"):
        go_on(worker, lambda: worker.finished)
    assert not worker._coroutines._loop.is_started


# What handlers do to the loop


def test_what_leaves_the_loop_does_not_end_it(using: str) -> None:
    """SystemExit in a task that a handler started, or a handler that stops the loop: it goes on."""

    async def leave() -> None:
        raise SystemExit

    async def work(message: Message) -> None:
        loop = asyncio.get_running_loop()
        if message.payload == "stop":
            loop.stop()
        else:
            task = loop.create_task(leave())
            await asyncio.wait([task])
            task.exception()
        await asyncio.sleep(0.01)

    rows_ = [enqueue(TOPIC, payload, using=using) for payload in ("stop", "leave", "stop", "leave")]
    with loose(work):
        run_worker(using, async_concurrency=1)
    assert set(rows(using).values_list("status", "attempts")) == {(Status.DONE, 1)}
    assert rows(using).count() == len(rows_)


def test_a_task_that_is_left_behind_is_ended_with_the_loop(using: str) -> None:
    """Whoever started it has returned; nobody else would."""
    ends: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ends.append("linger")

    kept: list[Any] = []

    async def work(message: Message) -> None:
        kept.append(asyncio.create_task(linger()))
        await asyncio.sleep(0)

    assert run_one(using, work).status == Status.DONE
    assert ends == ["linger"]


def test_a_forked_child_does_not_go_on_with_the_loop(using: str) -> None:
    """It would run every handler of its parent a second time."""

    async def work(message: Message) -> None:
        fork_and_return(lambda: None)

    assert run_one(using, work).status == Status.DONE


# The database


def session_number(using: str) -> int:
    """The server's own; SQLite has none."""
    connection = connections[using]
    connection.ensure_connection()
    if connection.vendor == "sqlite":
        return id(connection.connection)
    with connection.cursor() as cursor:
        is_postgres = connection.vendor == "postgresql"
        cursor.execute("SELECT pg_backend_pid()" if is_postgres else "SELECT CONNECTION_ID()")
        return int(cursor.fetchone()[0])


def test_database_calls_of_one_handler_go_to_one_thread(using: str) -> None:
    """With a connection that is kept; several handlers have several."""
    seen: dict[int, set[tuple[int, int]]] = {}

    def look(message: Message) -> None:
        seen.setdefault(message.payload, set()).add((threading.get_ident(), session_number(message.using)))

    async def work(message: Message) -> None:
        for _ in range(3):
            await sync_to_async(look)(message)

    enqueue_many([OutgoingMessage(topic=TOPIC, payload=n) for n in range(6)], using=using)
    with loose(work):
        run_worker(using, concurrency=2)
    assert {len(pairs) for pairs in seen.values()} == {1}
    assert len(set.union(*seen.values())) == 2


def leave_open(using: str) -> None:
    transaction.set_autocommit(False, using=using)
    Effect.objects.using(using).create(name="left")


def begin_by_hand(using: str) -> None:
    transaction.atomic(using=using).__enter__()
    Effect.objects.using(using).create(name="left")


@pytest.mark.parametrize("leave", [leave_open, begin_by_hand])
@pytest.mark.parametrize("swallows", [False, True])
def test_a_transaction_that_is_left_open_reaches_nobody(
    using: str, leave: Callable[[str], None], swallows: bool
) -> None:
    """On the one connection that several handlers use in turn: the call has failed, what the others write
    is committed."""

    async def work(message: Message) -> None:
        if message.payload == "bad":
            try:
                await sync_to_async(leave)(message.using)
            except Exception:
                if not swallows:
                    raise
            await asyncio.sleep(0.05)
        else:
            await asyncio.sleep(0.02)
            await Effect.objects.using(message.using).acreate(name="kept")

    bad = enqueue(TOPIC, "bad", using=using, max_attempts=1)
    enqueue_many([OutgoingMessage(topic=TOPIC, payload="good")] * 3, using=using)
    with loose(work):
        run_worker(using, concurrency=1)
    assert effects(using) == ["kept"] * 3
    stored = rows(using).get(pk=bad.pk)
    assert stored.status == (Status.DONE if swallows else Status.DEAD)
    assert swallows or "TransactionLeftOpen" in stored.last_error


def test_a_session_that_is_changed_is_not_kept(row_locking: str) -> None:
    """What one call sets, the next would run with."""

    def change(using: str) -> None:
        with connections[using].cursor() as cursor:
            is_postgres = connections[using].vendor == "postgresql"
            cursor.execute("SET SESSION lock_timeout = 4242" if is_postgres else "SET @mine = 4242")

    def read(using: str) -> str:
        with connections[using].cursor() as cursor:
            is_postgres = connections[using].vendor == "postgresql"
            cursor.execute("SHOW lock_timeout" if is_postgres else "SELECT @mine")
            return str(cursor.fetchone()[0])

    async def work(message: Message) -> str:
        await sync_to_async(change)(message.using)
        return await sync_to_async(read)(message.using)

    assert "4242" not in run_one(row_locking, work, concurrency=1).result


def test_a_session_that_died_is_opened_again(row_locking: str) -> None:
    """The server ended it: the call that met it fails, the next has a new one."""

    def die(using: str) -> None:
        connection = connections[using]
        connection.ensure_connection()
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            else:
                cursor.execute("KILL CONNECTION_ID()")

    async def work(message: Message) -> None:
        try:
            await sync_to_async(die)(message.using)
        except Exception:
            pass
        await Effect.objects.using(message.using).acreate(name="after")

    assert run_one(row_locking, work, concurrency=1).status == Status.DONE
    assert effects(row_locking) == ["after"]


def test_a_new_session_of_the_worker_is_followed(row_locking: str, worker_on: Any) -> None:
    """After an outage the sessions of these threads are gone too: nobody is to find out by failing."""
    seen: list[int] = []

    def look(using: str) -> None:
        seen.append(session_number(using))

    async def work(message: Message) -> None:
        await sync_to_async(look)(message.using)

    worker = worker_on(row_locking, concurrency=1)
    with loose(work):
        for _ in range(2):
            enqueue(TOPIC, using=row_locking)
            worker._lookout.look_at = 0
            go_on(worker, lambda: worker.finished)
            connections[row_locking].close()
            connections[row_locking].ensure_connection()
            worker.turn()
    assert len(seen) == 2
    assert len(set(seen)) == 2


@pytest.fixture
def worker_on() -> Iterator[Callable[..., OutboxWorker]]:
    workers: list[OutboxWorker] = []

    def start(using: str, **options: Any) -> OutboxWorker:
        worker = OutboxWorker(WorkerOptions(database=using, burst=True, **options))
        worker.start()
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.shut_down()
        worker.waiter.close()


def test_no_connection_outlives_the_worker(row_locking: str) -> None:
    """Neither those of the threads for the ORM, nor those of asyncio.to_thread()."""

    async def work(message: Message) -> list[int]:
        return [
            await sync_to_async(session_number)(message.using),
            await asyncio.to_thread(session_number, message.using),
            await sync_to_async(session_number, thread_sensitive=False)(message.using),
        ]

    numbers = set(json.loads(run_one(row_locking, work).result or ""))
    assert len(numbers) >= 2
    is_postgres = connections[row_locking].vendor == "postgresql"
    ask = (
        "SELECT pid FROM pg_stat_activity" if is_postgres else "SELECT id FROM information_schema.processlist"
    )

    def is_gone() -> bool:
        with connections[row_locking].cursor() as cursor:
            cursor.execute(ask)
            return numbers.isdisjoint(number for (number,) in cursor.fetchall())

    eventually(is_gone, seconds=5)


def test_sync_code_of_a_handler_may_await_again(using: str) -> None:
    """Async code that calls sync code that calls async code: asgiref brings it back to the loop."""

    async def inner(using: str) -> None:
        await Effect.objects.using(using).acreate(name="inner")

    async def work(message: Message) -> None:
        await sync_to_async(lambda: async_to_sync(inner)(message.using))()

    assert run_one(using, work, concurrency=1).status == Status.DONE
    assert effects(using) == ["inner"]


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


def test_one_that_blocks_the_loop_is_charged_alone(
    using: str, worker: OutboxWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its neighbours on the loop cannot go on: they go back, and are charged with nothing, though they are past
    their time before it is. The worker is to be replaced."""
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


def test_a_call_that_hangs_behind_a_cancelled_handler_costs_the_process(
    using: str, worker: OutboxWorker, monkeypatch: pytest.MonkeyPatch
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
    seen: list[bool] = []

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
    assert seen == []
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


def test_the_interpreter_has_no_threads_of_ours_left(using: str) -> None:
    """The loop, and the threads for calls, end with the worker."""

    async def work(message: Message) -> None:
        await Effect.objects.using(message.using).acreate(name="x")
        await asyncio.to_thread(os.getpid)

    before = set(threading.enumerate())
    assert run_one(using, work).status == Status.DONE
    eventually(lambda: not set(threading.enumerate()) - before)
