"""A worker and a scheduler in one process: the scheduler has a thread, and tells the worker what it made."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .. import clock
from ..logs import logger
from ..session import private_connection
from .connections import close_thread_connections
from .options import WorkerOptions
from .scheduler import Scheduler, SchedulerOptions
from .worker import MARGIN, OutboxWorker


class SchedulingWorker(OutboxWorker):
    """An outbox worker with a scheduler beside it. Neither goes on without the other."""

    def __init__(self, options: WorkerOptions, *, run_scheduler: Callable[[Scheduler], None]) -> None:
        super().__init__(options)
        self._scheduler = Companion(
            _scheduler_options(options),
            wake_worker=self.waiter.wake,
            exclusive=self._writer if self._one_writer else nullcontext(),
        )
        self._run_scheduler = run_scheduler
        self._scheduler_failed = False
        self._idle_since: float | None = None
        self._thread = threading.Thread(target=self._schedule, name="scheduler", daemon=True)

    def start(self) -> None:
        super().start()
        self._thread.start()

    def turn(self) -> float:
        if self._scheduler.take_news():
            self._rhythm.wake_up()
            self._lookout.nothing_due = False  # so it was before; now nobody has looked
        wait = super().turn()
        if self.options.burst:
            self._retire_scheduler()
        return wait

    @property
    def finished(self) -> bool:
        if self._scheduler_failed:
            return True
        return super().finished and (self._must_end or not self.options.burst or self._scheduler.retired)

    @property
    def lost_scheduler(self) -> bool:
        """It failed: another process must take over, or nothing would make what falls due."""
        return self._scheduler_failed and not self.stop_flag.requested

    def shut_down(self) -> bool:
        self._scheduler.stop_flag.request()
        until = clock.monotonic() + self.options.grace.total_seconds()
        ended = super().shut_down()
        # It may be waiting for somebody's lock. Given up in the middle, its transaction is undone.
        self._thread.join(timeout=max(0.0, until - clock.monotonic()) + MARGIN)
        return ended and not self._thread.is_alive()

    @property
    def _must_end(self) -> bool:
        """Whatever falls due."""
        return self.stop_flag.requested or self.runs.hopeless or self._claiming.used_up

    def _retire_scheduler(self) -> None:
        if not super().finished:
            self._idle_since = None
            return
        if self._idle_since is None:
            self._idle_since = clock.monotonic()
        self._scheduler.retire(self._idle_since)

    def _schedule(self) -> None:
        try:
            with private_connection(self.options.database, self._scheduler.session_limits):
                self._run_scheduler(self._scheduler)
        except BaseException:
            self._scheduler_failed = True
            self.waiter.wake()  # before the log: its handler may hang
            logger.critical("The scheduler failed: this process ends.", exc_info=True)
        finally:
            close_thread_connections()
            self._scheduler.waiter.close()


class Companion(Scheduler):
    """A scheduler that tells the worker when it has made something, and in a burst when nothing is due. It
    does not end by itself: while handlers run, they may schedule more."""

    def __init__(
        self,
        options: SchedulerOptions,
        *,
        wake_worker: Callable[[], None],
        exclusive: AbstractContextManager[Any],
    ) -> None:
        super().__init__(options)
        self.retired = False
        self._wake_worker = wake_worker
        self._exclusive = exclusive
        self._has_news = False
        self._quiet_since = -math.inf
        """When the last turn that found nothing due began."""
        self._in_turn = threading.Lock()

    @property
    def finished(self) -> bool:
        return self.stop_flag.requested

    def turn(self) -> float:
        # Behind the chunk that has the only write lock, and not in SQLite's own queue, which is none: whoever
        # asks there at the right moment is next, and that would be the next chunk.
        with self._exclusive, self._in_turn:
            if self.finished:
                return 0.0
            wait = self._take_turn()
        # Only PostgreSQL could wake it otherwise, and not in a burst.
        if not wait or self.options.burst:
            self._wake_worker()
        return wait

    def _take_turn(self) -> float:
        wait, began = 0.0, clock.monotonic()
        try:
            wait = super().turn()
        finally:
            if not wait:  # or an error: what was made before that is committed
                self._has_news = True
        if super().finished:
            self._quiet_since = began
        return wait

    def take_news(self) -> bool:
        """Whether something was made since the last time."""
        if not self._has_news:
            return False
        self._has_news = False
        return True

    def retire(self, idle_since: float) -> None:
        """In a burst: end, if nothing was due since the worker has had nothing to do. Else look at once: its
        last handlers may have scheduled something."""
        if not self._in_turn.acquire(blocking=False):
            return  # it wakes the worker when that turn is over
        try:
            if self._quiet_since < idle_since:
                self.waiter.wake()
            elif not self._has_news:
                self.retired = True
                self.stop_flag.request()  # within the lock: no other turn begins
        finally:
            self._in_turn.release()


def _scheduler_options(options: WorkerOptions) -> SchedulerOptions:
    return SchedulerOptions(
        database=options.database,
        poll_max=options.poll_max,
        lease=options.lease,
        wakeup=options.wakeup,
        burst=options.burst,
    )
