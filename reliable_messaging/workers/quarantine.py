"""Suspects run in a child process of their own, one at a time, while normal work goes on here.

What killed a worker before may do it again: then it kills the child, alone.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace

from .. import clock, logs
from .launch import start_child
from .options import WorkerOptions

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 10.0
Start = Callable[[], "subprocess.Popen[bytes]"]


class Quarantine:
    """At most one child, started when a suspect is due. It works through the due ones and ends.

    ``orphan`` is one that this process started before it took its own place: nobody else waits for it.
    """

    def __init__(self, start: Start, *, orphan: int | None = None) -> None:
        self._start = start
        self._child: subprocess.Popen[bytes] | None = None
        self._orphan = orphan
        self._again_at = 0.0
        self._pause = FIRST_PAUSE

    def open(self) -> None:
        """Have a child at work, unless the last one has only just died."""
        if self.is_open or clock.monotonic() < self._again_at:
            return
        try:
            self._child = self._start()
        except OSError as exc:  # no process or memory to be had: the suspects wait, the rest goes on
            self._again_at = clock.monotonic() + LONGEST_PAUSE
            logs.event(logging.ERROR, "quarantine not opened", error=str(exc), retry_in=LONGEST_PAUSE)
            return
        logs.event(logging.WARNING, "quarantine opened", pid=self._child.pid)

    @property
    def pid(self) -> int | None:
        """Of the child, also of one that has only just ended."""
        return self._orphan if self._child is None else self._child.pid

    @property
    def is_open(self) -> bool:
        if self._child is None:
            return self._has_orphan()
        code = self._child.poll()
        if code is None:
            return True
        self._ended(code)
        return False

    def let_go(self) -> None:
        """Let the child finish the one it is at, and end."""
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()

    def close(self, *, within: float) -> None:
        """Wait for the child; end it when it takes too long."""
        self.let_go()
        if self._child is None:
            return
        try:
            code = self._child.wait(timeout=max(0.0, within))
        except subprocess.TimeoutExpired:
            self._child.kill()
            code = self._child.wait()
        self._ended(code)

    def kill(self) -> None:
        """From a signal handler, just before this process ends: nothing is waited for."""
        if self._child is not None:
            self._child.kill()

    def _has_orphan(self) -> bool:
        """It ends by itself: its standard input was closed. Until it is asked for, it stays a zombie."""
        if self._orphan is not None:
            try:
                ended, _ = os.waitpid(self._orphan, os.WNOHANG)
            except ChildProcessError:
                ended = self._orphan
            if ended:
                self._orphan = None
        return self._orphan is not None

    def _ended(self, code: int) -> None:
        self.let_go()
        self._child = None
        if code == 0:
            self._pause = FIRST_PAUSE
            logs.event(logging.INFO, "quarantine closed")
            return
        # Not at once: a child that cannot even start must not become a busy loop.
        self._again_at = clock.monotonic() + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        logs.event(logging.WARNING, "quarantine died", code=code)


def start_quarantine(options: WorkerOptions) -> subprocess.Popen[bytes]:
    return start_child(
        replace(
            options,
            quarantine=True,
            concurrency=1,
            async_concurrency=1,
            chunk_size=1,
            wakeup=False,
            burst=False,
            max_messages=None,
            orphan=None,
        )
    )
