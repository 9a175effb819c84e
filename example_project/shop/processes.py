"""Child processes of the example, which end when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType, TracebackType
from typing import BinaryIO

from django.conf import settings

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_SECONDS = 10


@contextmanager
def leaving_on_signals(exit_code: int | None = None) -> Iterator[None]:
    """Turn Ctrl-C, SIGTERM and SIGHUP into SystemExit, so that every ``with`` block is left tidily."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number if exit_code is None else exit_code)

    before = {number: signal.signal(number, leave) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


class Children:
    """``manage.py`` commands as processes; leaving the block stops those that still run."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, log_directory: Path | None = None
    ) -> None:
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._log_directory = log_directory
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments]
        with self._output() as output:
            # In a session of its own: Ctrl-C reaches us alone, and we stop the children in good order.
            child = subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._started.append(child)
        return child

    def log_of(self, child: subprocess.Popen[bytes]) -> Path:
        return self._log(self._started.index(child))

    def __iter__(self) -> Iterator[subprocess.Popen[bytes]]:
        return iter(self._started)

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # an impatient second Ctrl-C would leave them running
        for child in self._started:
            child.terminate()
        for child in self._started:
            _await_end(child)

    def _output(self) -> AbstractContextManager[BinaryIO | None]:
        """Where a child's lines go: a file of its own, or None, which is our own terminal."""
        if self._log_directory is None:
            return nullcontext()
        return self._log(len(self._started)).open("wb")

    def _log(self, number: int) -> Path:
        assert self._log_directory is not None
        return self._log_directory / f"process-{number + 1}.log"


def _await_end(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
