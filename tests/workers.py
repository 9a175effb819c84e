"""A worker that a test ticks by hand, and worker processes that a test may kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from reliable_messaging.registry import Handler, registry
from reliable_messaging.workers import OutboxWorker, WorkerOptions

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def handling(topic: str, function: Callable[[Any], Any], **options: Any) -> Iterator[None]:
    """Register a handler for the length of a test."""
    handler = Handler(topic=topic, function=function, **options)
    registry.add(handler)
    try:
        yield
    finally:
        registry.remove(handler)


def run_worker(using: str, *, until: Callable[[], bool] | None = None, **options: Any) -> OutboxWorker:
    """Take turns in this thread until nothing is due (or ``until``), then shut down."""
    worker = OutboxWorker(
        WorkerOptions(database=using, **{"burst": True, "grace": timedelta(seconds=5), **options})
    )
    worker.start()
    try:
        deadline = time.monotonic() + 30
        while not (until() if until else worker.finished):
            assert time.monotonic() < deadline, "the worker did not finish"
            worker.waiter.wait(worker.turn())
    finally:
        worker.shut_down()
        worker.waiter.close()
    return worker


class WorkerProcess:
    """``manage.py run_outbox_worker``, or another command, on the test databases."""

    def __init__(
        self,
        using: str,
        *arguments: str,
        log: Path,
        command: str = "run_outbox_worker",
        environment: dict[str, str] | None = None,
        stdin: int | None = None,
    ) -> None:
        self.log = log
        self._file = log.open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "django", command, "--database", using, *arguments],
            cwd=ROOT,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", **(environment or {})},
            stdin=stdin,
            stdout=self._file,
            stderr=subprocess.STDOUT,
        )

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=30)

    def wait(self, seconds: float = 30) -> int:
        return self.process.wait(timeout=seconds)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        if self.alive:
            self.kill()
        self._file.close()


Start = Callable[..., WorkerProcess]


@contextmanager
def starting(log: Path) -> Iterator[Start]:
    """Start worker processes; none of them outlives the block, and their last words are printed."""
    with ExitStack() as stack:

        def start(using: str, *arguments: str, **options: Any) -> WorkerProcess:
            worker = WorkerProcess(using, *arguments, log=log, **options)
            stack.callback(worker.close)
            return worker

        yield start
    if log.exists():
        print(log.read_text()[-5000:])


def eventually(condition: Callable[[], bool], *, seconds: float = 30, every: float = 0.02) -> None:
    """Wait for the condition, no longer than the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(every)
