"""The guard of the guards: an alarm of the system's own.

A handler that never lets go of the interpreter (a regular expression that explodes, a C extension that
hangs) stops every thread of its process, the watchdog and the heartbeat too. Its leases end and others
take over, but the process would stay for ever, and its place with a supervisor would never be free. So
a thread keeps winding up an alarm; when nobody does any more, it ends the process, and says on standard
error where it stood. The messages in its hands are charged with a crash.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

from .launch import STANDARD_ERROR, is_own_process

LEASES = 4
"""More than the three after which a claim that went unanswered ends the process."""
SHORTEST = 10.0
WINDINGS = 10
"""In the time that the alarm takes."""


@contextmanager
def ending_when_frozen(lease: timedelta) -> Iterator[None]:
    """For the length of the block. Not in somebody else's process, nor where the signal is in use."""
    if not is_own_process() or signal.getsignal(signal.SIGALRM) != signal.SIG_DFL:
        yield
        return
    alarm: Alarm = ExitTimer() if os.getpid() == 1 else SignalTimer()
    winding = Winding(alarm, seconds=max(LEASES * lease.total_seconds(), SHORTEST))
    winding.start()
    try:
        yield
    finally:
        winding.stop()


class Alarm(Protocol):
    def wind(self, seconds: float) -> None:
        """It goes off in that time, unless it is wound up again before."""

    def unwind(self) -> None: ...


class SignalTimer:
    """SIGALRM. The system's timer follows no clock that can be set. Standard error is given by its number:
    where it is closed, the process is ended all the same."""

    def __init__(self) -> None:
        faulthandler.register(signal.SIGALRM, file=STANDARD_ERROR, chain=True)

    def wind(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def unwind(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.unregister(signal.SIGALRM)


class ExitTimer:
    """For the first process of a container, which no signal of its own can end. On some systems this
    timer follows the wall clock."""

    def wind(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=STANDARD_ERROR)

    def unwind(self) -> None:
        faulthandler.cancel_dump_traceback_later()


class Winding:
    def __init__(self, alarm: Alarm, *, seconds: float) -> None:
        self._alarm = alarm
        self._seconds = seconds
        self._stopped = False
        self._lock = threading.Lock()

    def start(self) -> None:
        self._alarm.wind(self._seconds)
        threading.Thread(target=self._run, name="alarm", daemon=True).start()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._alarm.unwind()

    def _run(self) -> None:
        while True:
            time.sleep(self._seconds / WINDINGS)
            with self._lock:
                if self._stopped:
                    return
                self._alarm.wind(self._seconds)
