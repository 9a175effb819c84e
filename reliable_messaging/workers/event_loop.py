"""One event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any

from .. import clock
from ..dispatch.watch import Watch
from ..logs import logger

BEAT_SECONDS = 0.25
BLOCKED_SECONDS = 2.0
"""So long without a beat: something in the loop does not let go."""
TIDY_SECONDS = 1.0
"""For what handlers have left in the loop, when it ends."""


class EventLoop:
    """Started when it is first needed. The thread is a daemon: what never ends must not keep the process from
    exiting. Nothing that a handler does ends the loop."""

    def __init__(self, *, is_busy: Callable[[], bool], on_end: Callable[[], None]) -> None:
        self._is_busy = is_busy
        self._on_end = on_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="event-loop", daemon=True)
        # Callbacks run in it, and tasks in copies of it: nothing of one handler reaches another.
        self._context = Context()
        self._ended = False
        self._beats = False
        self._beat_at = 0.0

    def start(self, executor: ThreadPoolExecutor) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(executor)
        self._thread.start()

    @property
    def is_started(self) -> bool:
        return self._loop is not None

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def thread(self) -> int:
        return self._thread.ident or 0

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """In the loop, soon; from any thread. After its end, never."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *arguments, context=self._context)
        except RuntimeError:
            if not self._ended:
                raise

    def wait(self, seconds: float) -> None:
        """For its end."""
        if self.is_started:
            self._thread.join(seconds)

    # In the loop

    def create_task(
        self, coroutine: Coroutine[Any, Any, None], *, then: Callable[[asyncio.Task[None]], object]
    ) -> asyncio.Task[None]:
        assert self._loop is not None
        task = self._loop.create_task(coroutine)
        task.add_done_callback(then, context=self._context)
        if not self._beats:
            self._beats = True
            self._beat()
        return task

    def end(self) -> None:
        assert self._loop is not None
        self._ended = True
        self._loop.stop()

    @property
    def is_blocked(self) -> bool:
        """Whether something in it does not let go; from any thread."""
        return self._beats and clock.monotonic() > self._beat_at + BLOCKED_SECONDS

    def _beat(self) -> None:
        assert self._loop is not None
        self._beat_at = clock.monotonic()
        self._beats = self._is_busy()
        if self._beats:
            self._loop.call_later(BEAT_SECONDS, self._beat)

    def _work(self) -> None:
        assert self._loop is not None
        try:
            with Watch():  # so that a child which a handler forks here is noticed
                self._run(self._loop)
                self._tidy(self._loop)
        finally:
            self._loop.close()
            self._on_end()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._ended:
            try:
                loop.run_forever()  # also after a handler has stopped it
            except BaseException:  # SystemExit in a task that a handler has started, or in a callback
                logger.exception("An exception left the event loop, which goes on.")

    def _tidy(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give what handlers have left there the chance to end."""
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        try:
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=TIDY_SECONDS))
            loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), TIDY_SECONDS))
        except BaseException:
            logger.exception("What a handler has left in the event loop could not be ended.")
