"""Sync calls of async handlers, on threads: Django's ORM, ``sync_to_async``, ``asyncio.to_thread``.

Coroutines take turns, so their calls do too: between two of one handler there may be those of others, on
the same connection. So each call is treated as a whole handler is elsewhere: one that leaves a transaction
open has failed, and its connection is closed before the next call.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from itertools import cycle
from typing import Any, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext

from ..dispatch.isolate import isolated
from ..dispatch.watch import Watch
from .async_run import AsyncRun, current_run
from .connections import clean_up_connections, close_thread_connections
from .pool import Pool

T = TypeVar("T")


class Calls:
    """As many threads as there are for sync handlers, each with a connection of its own, kept open. All that
    is thread-sensitive in one message goes to one of them; asgiref's own would be a single thread for
    the whole process. They are started when they are first needed."""

    def __init__(self, make_pool: Callable[[], Pool], *, threads: int) -> None:
        self._threads = [_CallThread(make_pool) for _ in range(threads)]
        self._next = cycle(self._threads)
        self.spare = _SpareThreads(thread_name_prefix="spare")

    def choose_thread(self) -> None:
        """For the task that asks."""
        SyncToAsync.thread_sensitive_context.set(next(self._next).context)

    def follow(self, session: object) -> None:
        for thread in self._threads:
            thread.follow(session)

    def close(self) -> None:
        for thread in self._threads:
            thread.close()
        self.spare.shutdown(wait=False, cancel_futures=True)

    @property
    def alive(self) -> int:
        """How many have not ended: the spare ones count while they are at work."""
        return len(self.spare.unanswered) + sum(thread.alive for thread in self._threads)


class _CallThread(Executor):
    def __init__(self, make_pool: Callable[[], Pool]) -> None:
        self._make_pool = make_pool
        self._pool: Pool | None = None
        self._leader: object = None
        self.context = ThreadSensitiveContext()
        SyncToAsync.context_to_thread_executor[self.context] = self

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        run = current_run.get()
        if run is not None:
            run.join()
        self._started().submit(partial(_answer, future, partial(fn, *args, **kwargs), run))
        return future

    def follow(self, session: object) -> None:
        self._leader = session
        if self._pool is not None:
            self._pool.follow(session)

    def close(self) -> None:
        SyncToAsync.context_to_thread_executor.pop(self.context, None)
        if self._pool is not None:
            self._pool.close()

    @property
    def alive(self) -> int:
        return 0 if self._pool is None else self._pool.alive

    def _started(self) -> Pool:
        if self._pool is None:
            self._pool = self._make_pool()
            self._pool.follow(self._leader)  # first: or its first session would be taken for an old one
            self._pool.start()
        return self._pool


class _SpareThreads(ThreadPoolExecutor):
    """For ``asyncio.to_thread()`` and whatever else may run anywhere. They come and go, so no connection of
    theirs is kept."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.unanswered: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        run = current_run.get()
        if run is not None:
            run.join()
        future = super().submit(_call_and_close, partial(fn, *args, **kwargs))
        self.unanswered.add(future)
        future.add_done_callback(partial(self._answered, run=run))
        return future

    def _answered(self, future: Future[Any], *, run: AsyncRun | None) -> None:
        self.unanswered.discard(future)
        if run is not None:
            run.leave()


def _answer(future: Future[T], function: Callable[[], T], run: AsyncRun | None, _connection: Any) -> None:
    try:
        if future.set_running_or_notify_cancel():
            try:
                result = _call(function)
            except BaseException as exc:
                future.set_exception(exc)
            else:
                future.set_result(result)
    finally:
        if run is not None:
            run.leave()


def _call(function: Callable[[], T]) -> T:
    try:
        with Watch():
            return isolated(function)
    finally:
        clean_up_connections()


def _call_and_close(function: Callable[[], T]) -> T:
    try:
        return _call(function)
    finally:
        close_thread_connections()
