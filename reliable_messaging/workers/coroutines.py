"""Running claimed messages of async handlers."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from .. import clock
from ..dispatch import run_async, settlement_for
from ..message import Message
from ..registry import Handler, registry
from ..workqueue import Release, Settlement
from .async_run import AsyncRun, current_run
from .calls import Calls
from .event_loop import EventLoop
from .flights import Flights
from .runs import Runs
from .tasks import _unexpected

LAST_MOMENT = 1.0
"""Seconds for what is cancelled after the grace to come to its end."""


class Coroutines:
    """Beside the pool of threads: all on one event loop, so many at once as ``limit`` says. Where no handler
    is async, there is no event loop either."""

    def __init__(
        self,
        *,
        limit: int,
        flights: Flights,
        runs: Runs,
        calls: Calls,
        learn: Callable[[float], None],
        stopping: Callable[[], bool],
        on_end: Callable[[], None],
    ) -> None:
        self._limit = limit
        self._flights = flights
        self._runs = runs
        self._calls = calls
        self._learn = learn
        self._stopping = stopping
        self._on_end = on_end
        self._loop = EventLoop(is_busy=lambda: bool(self._running), on_end=self._loop_ended)
        self._waiting: deque[Message] = deque()
        self._running: set[AsyncRun] = set()
        self._open: set[AsyncRun] = set()
        """Those that are not over."""
        self._lock = threading.Lock()
        self._held = 0
        self._closed = False

    # For the claiming thread

    def take(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Run those of async handlers, and return the others."""
        if not registry.has_async:
            return messages
        own = [message for message in messages if _is_async(message)]
        if not own:
            return messages
        if not self._closed:
            self._hand_over(own)
        return [message for message in messages if not _is_async(message)]

    @property
    def running(self) -> int:
        """How many run, or are about to: they wait for nothing that this process is short of."""
        return min(self._held, self._limit)

    def follow(self, session: object) -> None:
        """See ``Pool.follow``."""
        self._calls.follow(session)

    def close(self) -> None:
        """Let the loop end after what runs."""
        self._closed = True
        if self._loop.is_started:
            self._loop.call(self._go_on)

    def cancel(self) -> None:
        """Cancel what runs, and wait a moment for its end; one that ends gives its message back."""
        if self._loop.is_alive:
            self._loop.call(self._cancel_all)
            self._loop.wait(LAST_MOMENT)

    @property
    def alive(self) -> int:
        """How many have not ended; when all have, the threads that served them, which end only then."""
        return len(self._open) or self._calls.alive or int(self._loop.is_alive)

    def _hand_over(self, messages: Sequence[Message]) -> None:
        with self._lock:
            self._held += len(messages)
        self._waiting.extend(messages)
        if not self._loop.is_started:
            self._loop.start(self._calls.spare)
        self._loop.call(self._go_on)  # once for all of them: each call wakes the loop

    # In the loop

    def _go_on(self) -> None:
        while self._waiting and len(self._running) < self._limit:
            self._begin(self._waiting.popleft())
        if self._closed and not self._running:
            self._loop.end()

    def _begin(self, message: Message) -> None:
        boarded = None if self._stopping() else self._flights.boarding(message, unfenced=True)
        if boarded is None:
            self._let_go()
            self._flights.land([message], [Release(item=message)])
            return
        handler = registry.find(message.topic)
        run = AsyncRun(message=message, loop=self._loop, on_over=self._over)
        self._running.add(run)
        self._open.add(run)
        self._runs.begin(message, handler, host=run)
        run.task = self._loop.create_task(self._run(run, boarded, handler), then=partial(self._ended, run))

    async def _run(self, run: AsyncRun, boarded: Message, handler: Handler | None) -> None:
        current_run.set(run)
        self._calls.choose_thread()
        started = clock.monotonic()
        try:
            settlement = settlement_for(run.message, handler, await run_async(boarded, handler))
        except GeneratorExit:
            raise
        except BaseException as exc:
            settlement = _unexpected(run.message, exc)
        self._learn(clock.monotonic() - started)
        self._land(run, settlement)

    def _ended(self, run: AsyncRun, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._land(run, Release(item=run.message))  # before it began: its handler was not even called
        elif (exc := task.exception()) is not None:
            self._land(run, _unexpected(run.message, exc))
        self._running.discard(run)
        self._let_go()
        run.leave()
        self._go_on()

    def _land(self, run: AsyncRun, settlement: Settlement) -> None:
        self._flights.land([run.message], [settlement])

    def _let_go(self) -> None:
        with self._lock:
            self._held -= 1

    def _cancel_all(self) -> None:
        for run in self._running:
            if run.task is not None:
                run.task.cancel()

    def _loop_ended(self) -> None:
        self._calls.close()
        self._on_end()

    # In the loop, or on the thread of its last call

    def _over(self, run: AsyncRun) -> None:
        self._runs.end(run)
        self._open.discard(run)


def _is_async(message: Message) -> bool:
    handler = registry.find(message.topic)
    return handler is not None and handler.is_async
