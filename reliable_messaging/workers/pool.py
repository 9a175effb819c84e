"""Handler threads."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from .. import clock
from ..logs import logger
from .connections import close_thread_connections
from .tasks import Task


class Pool:
    """A fixed number of threads that run tasks. They are daemons: a handler that never ends
    must not keep the process from exiting after the grace."""

    def __init__(self, size: int) -> None:
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"handler-{number}", daemon=True)
            for number in range(size)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def submit(self, task: Task) -> None:
        self._tasks.put(task)

    def stop(self, seconds: float) -> bool:
        """Let the threads end after what is queued; False when some are still busy."""
        for _ in self._threads:
            self._tasks.put(None)
        until = clock.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - clock.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        try:
            while (task := self._tasks.get()) is not None:
                try:
                    task()
                except BaseException:
                    logger.exception("A task failed outside its handler.")
        finally:
            close_thread_connections()
