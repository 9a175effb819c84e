"""Processes that the benchmark starts, and always ends."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.services import RUN_DIR

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS = 20.0
POLL_SECONDS = 0.02

_numbers = count(1)


class TooSlow(Exception):
    """Something did not happen within its deadline."""


class Process:
    """A running Python process of ours, with its output in a file."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str]) -> None:
        self.log = RUN_DIR / f"process-{next(_numbers)}.log"
        with self.log.open("wb") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far. Linux only; elsewhere not a number."""
        status = Path(f"/proc/{self._popen.pid}/stat")
        if not status.exists():
            return math.nan
        # The name in brackets may hold spaces; utime and stime are the 12th and 13th field after it.
        fields = status.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait_until(
        self, condition: Callable[[], bool], what: str, *, seconds: float, every: float = POLL_SECONDS
    ) -> None:
        """Wait for it, as long as the process lives and the deadline is not past."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self._popen.poll() is not None:
                raise TooSlow(f"The process ended ({self._popen.returncode}) before {what}.\n{self._tail()}")
            if time.monotonic() > deadline:
                raise TooSlow(f"{what} took more than {seconds:g} s.\n{self._tail()}")
            time.sleep(every)

    def memory_bytes(self) -> float:
        """What it holds of the machine's memory now. Linux only; elsewhere not a number."""
        status = Path(f"/proc/{self._popen.pid}/statm")
        if not status.exists():
            return math.nan
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def wait_for_end(self, *, seconds: float) -> None:
        if self._popen.wait(seconds):
            raise TooSlow(f"The process ended with {self._popen.returncode}.\n{self._tail()}")

    def stop(self) -> None:
        self._popen.terminate()
        try:
            self._popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait(STOP_SECONDS)

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


@contextmanager
def worker(*options: str, environment: Mapping[str, str] = {}) -> Iterator[Process]:
    """A real worker: ``manage.py run_outbox_worker`` with these options."""
    with _running(["django", "run_outbox_worker", *options], environment) as process:
        yield process


@contextmanager
def scheduler(*options: str) -> Iterator[Process]:
    """A real scheduler: ``manage.py run_scheduler`` with these options."""
    with _running(["django", "run_scheduler", *options], {}) as process:
        yield process


@contextmanager
def plain_loop(name: str, *options: str, environment: Mapping[str, str] = {}) -> Iterator[Process]:
    """One of the loops of ``reference``."""
    with _running(["tests.benchmarks.reference", name, *options], environment) as process:
        yield process


@contextmanager
def producer(folder: Path, number: int) -> Iterator[Process]:
    """One of ``producer.py``."""
    with _running(["tests.benchmarks.producer", str(folder), str(number)], {}) as process:
        yield process


@contextmanager
def _running(arguments: list[str], environment: Mapping[str, str]) -> Iterator[Process]:
    process = Process(arguments, environment)
    try:
        yield process
    finally:
        process.stop()
        process.log.unlink()
