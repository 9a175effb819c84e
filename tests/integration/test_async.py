"""Async handlers: on an event loop, many at once, never atomic, and otherwise as any other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar, copy_context
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

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
from reliable_messaging.models import Status
from reliable_messaging.registry import DEAD_LETTER_PREFIX
from reliable_messaging.workers import OutboxWorker
from tests.faults.forks import fork_and_return
from tests.testapp.models import Effect
from tests.workers import eventually, handling, run_worker

from .coroutines import TOPIC, effects, go_on, loose, rows, run_one, working


@pytest.fixture
def worker(using: str) -> Iterator[OutboxWorker]:
    with working(using) as worker:
        yield worker


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
        (asyncio.CancelledError("own"), (Status.READY, 1, 0)),
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

    row = enqueue(TOPIC, using=using)
    with (
        loose(work, backoff=lambda n: timedelta(minutes=10)),
        loose(fine, "test.fine"),
        working(using) as worker,
    ):
        go_on(worker, lambda: worker.finished)
        enqueue("test.fine", using=using)
        worker._lookout.look_at = 0
        go_on(worker, lambda: rows(using).get(topic="test.fine").status == Status.DONE)
    stored = rows(using).get(pk=row.pk)
    assert (stored.status, stored.failures, stored.transient_failures) == wanted


def test_a_handler_that_exits_is_no_accident_of_ours(using: str, caplog: pytest.LogCaptureFixture) -> None:
    """It has failed, as with any exception; the loop hears nothing of it."""

    async def work(message: Message) -> None:
        raise SystemExit(3)

    row = enqueue(TOPIC, using=using, max_attempts=1)
    with loose(work):
        run_worker(using)
    assert rows(using).get(pk=row.pk).last_error == "SystemExit: 3"
    assert not [record for record in caplog.records if record.exc_info]


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
    """Context variables end with the handler, also when the next waits for its place. Nor does anything of
    the thread that claims."""
    variable: ContextVar[str] = ContextVar("test_variable", default="nothing")
    seen: list[str] = []

    async def work(message: Message) -> None:
        seen.append(variable.get())
        variable.set("something")
        await asyncio.sleep(0)

    enqueue_many([OutgoingMessage(topic=TOPIC)] * 4, using=using)
    claiming = copy_context()
    claiming.run(variable.set, "the claiming thread's")
    with loose(work):
        claiming.run(partial(run_worker, using, async_concurrency=1))
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


def test_a_place_that_comes_free_is_not_taken_any_more(using: str, worker: OutboxWorker) -> None:
    """Told to stop, or with a handler that hangs: what waits for its place goes back, also in the moment
    before the claiming thread has noticed."""
    go = asyncio.Event()
    ran: list[Any] = []

    async def work(message: Message) -> None:
        ran.append(message.payload)
        await go.wait()

    enqueue_many([OutgoingMessage(topic=TOPIC, payload=n) for n in range(3)], using=using)
    with loose(work):
        worker._coroutines._limit = 1
        go_on(worker, lambda: ran == [0])
        worker.stop_flag.requested = True
        worker._coroutines._loop.call(go.set)
        eventually(lambda: worker.flights.active == 0)
    assert ran == [0]


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

    row = enqueue(TOPIC, using=using, max_attempts=1)  # without the guard, one fork is enough
    with loose(work):
        run_worker(using)
    assert rows(using).get(pk=row.pk).status == Status.DONE
