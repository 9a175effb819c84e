"""Several worker processes under one parent, which starts again what died."""

from __future__ import annotations

import logging
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .. import clock, logs
from ..waiter import Waiter
from .launch import TRY_AGAIN, start_child
from .options import WorkerOptions
from .stop import StopFlag, stopping_on_signals

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
LONG_LIFE = 60.0
"""A child that lived this long has not failed to start: its successor comes soon."""
MARGIN = 5.0
"""What a child may need beyond its grace: to settle, and to say goodbye."""
AT_ONCE = 2.0
"""How long a child may take to end when it must end now."""
TWICE = (signal.SIGTERM, signal.SIGINT)
"""Different ones: two of a kind may arrive as one."""
Start = Callable[[], "subprocess.Popen[bytes]"]


def supervise(options: WorkerOptions, *, processes: int) -> None:
    """Run that many workers until told to stop, or until each has done what it was to do."""
    waiter = Waiter()
    stop = StopFlag(waiter.wake)
    slots = [
        Slot(start=lambda: start_child(options), name=str(n + 1), may_end=_may_end(options))
        for n in range(processes)
    ]
    supervisor = Supervisor(
        slots=slots, waiter=waiter, stop=stop, patience=options.grace.total_seconds() + MARGIN
    )
    with stopping_on_signals(stop, at_once=supervisor.kill), waking_when_a_child_ends(waiter):
        supervisor.run()
    waiter.close()


@dataclass(slots=True, kw_only=True)
class Slot:
    """A place for one worker process, taken by one after the other."""

    start: Start
    name: str
    may_end: bool
    """Its worker has an end of its own. Any other exit is a death, with the code 0 too: that may be a
    handler's doing."""
    finished: bool = False
    """Its worker has done what it was to do, and needs no successor."""
    start_at: float = 0.0
    child: subprocess.Popen[bytes] | None = None
    _started_at: float = 0.0
    _pause: float = FIRST_PAUSE

    def tend(self) -> None:
        """Notice an end; start what is to be started."""
        if self.child is not None and (code := self.child.poll()) is not None:
            self._ended(code)
        if self.child is None and not self.finished and clock.monotonic() >= self.start_at:
            self._begin()

    def _begin(self) -> None:
        self._started_at = clock.monotonic()
        try:
            self.child = self.start()
        except OSError as exc:  # no process or memory to be had: the others must not go down with it
            self.start_at = clock.monotonic() + LONGEST_PAUSE
            logs.event(logging.ERROR, "process not started", slot=self.name, error=str(exc))
            return
        logs.event(logging.INFO, "process started", slot=self.name, pid=self.child.pid)

    def let_go(self) -> None:
        """Ask the child to stop: it finishes what it runs, within its grace."""
        self.finished = True
        if self.child is not None and self.child.stdin is not None:
            self.child.stdin.close()

    def insist(self) -> None:
        """Tell the child twice, as a person would: it ends now, and takes its quarantine along."""
        if self.child is not None:
            for number in TWICE:
                self.child.send_signal(number)

    def kill(self, *, after: float) -> None:
        """Unless it ends within that time."""
        if self.child is None:
            return
        try:
            self.child.wait(timeout=max(0.0, after))
        except subprocess.TimeoutExpired:
            self.child.kill()

    def _ended(self, code: int) -> None:
        assert self.child is not None
        assert self.child.stdin is not None
        self.child.stdin.close()
        self.child = None
        if code == 0 and self.may_end:
            self.finished = True
        if self.finished:
            logs.event(logging.INFO, "process ended", slot=self.name, code=code)
            return
        lived = clock.monotonic() - self._started_at
        # One that asks for a successor, or has lived for long, did not die of its start.
        self._pause = FIRST_PAUSE if code == TRY_AGAIN or lived > LONG_LIFE else self._pause
        self.start_at = clock.monotonic() + self._pause
        logs.event(logging.ERROR, "process died", slot=self.name, code=code, restart_in=self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


@dataclass(slots=True, kw_only=True)
class Supervisor:
    slots: list[Slot]
    waiter: Waiter
    stop: StopFlag
    patience: float
    """How long children may take to stop, before they are killed."""
    _kill_at: float | None = field(default=None)

    def run(self) -> None:
        while True:
            if self.stop.requested and self._kill_at is None:
                self._let_go()
            for slot in self.slots:
                slot.tend()
            if not any(slot.child is not None or not slot.finished for slot in self.slots):
                return
            self.waiter.wait(self._wait_seconds())

    def kill(self) -> None:
        """End all children now. A SIGKILL right away would leave their quarantines behind, each for its
        whole grace."""
        for slot in self.slots:
            slot.insist()
        until = clock.monotonic() + AT_ONCE
        for slot in self.slots:
            slot.kill(after=until - clock.monotonic())

    def _let_go(self) -> None:
        self._kill_at = clock.monotonic() + self.patience
        for slot in self.slots:
            slot.let_go()

    def _wait_seconds(self) -> float:
        now = clock.monotonic()
        if self._kill_at is not None:
            if now >= self._kill_at:
                logs.event(logging.ERROR, "processes killed", reason="they did not stop within their grace")
                self.kill()
            return 1.0
        starts = [slot.start_at - now for slot in self.slots if slot.child is None and not slot.finished]
        return max(0.0, min([60.0, *starts]))


def _may_end(options: WorkerOptions) -> bool:
    return options.burst or options.max_messages is not None


@contextmanager
def waking_when_a_child_ends(waiter: Waiter) -> Iterator[None]:
    def wake(_number: int, _frame: Any) -> None:
        waiter.wake()

    before = signal.signal(signal.SIGCHLD, wake)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)
