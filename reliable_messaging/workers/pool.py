"""Handler threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from django.db import connections

from .. import clock
from ..logs import logger
from ..session import SessionLimits, discard, private_connection
from .connections import close_thread_connections
from .tasks import Task


class Pool:
    """A fixed number of threads that run tasks. They are daemons: a handler that never ends
    must not keep the process from exiting after the grace."""

    def __init__(self, size: int, *, alias: str, limits: SessionLimits, on_end: Callable[[], None]) -> None:
        self._alias = alias
        self._limits = limits
        self._on_end = on_end
        self._longest_rest = limits.lease.total_seconds()
        self._leader: object = None
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"handler-{number}", daemon=True)
            for number in range(size)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def follow(self, session: object) -> None:
        """Told of the claiming thread's session. When that is a new one, what ended the old has ended
        those of the handlers too: else each thread's next message would find out, and fail for it."""
        self._leader = session

    def submit(self, task: Task) -> None:
        self._tasks.put(task)

    def close(self) -> None:
        """Let the threads end after what is queued."""
        for _ in self._threads:
            self._tasks.put(None)

    @property
    def alive(self) -> int:
        """How many threads have not ended."""
        return sum(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        try:
            with private_connection(self._alias, self._limits):
                self._work_off()
        finally:
            close_thread_connections()
            self._on_end()

    def _work_off(self) -> None:
        connection = connections[self._alias]
        leader, idle_since = self._leader, clock.monotonic()
        while (task := self._tasks.get()) is not None:
            # After a long rest, too: servers and firewalls end what is silent for hours.
            if self._leader is not leader or clock.monotonic() > idle_since + self._longest_rest:
                discard(connection)
            leader = self._leader
            try:
                task(connection)
            except BaseException:
                logger.exception("A task failed outside its handler.")
            idle_since = clock.monotonic()
