"""The guard of the guards: an alarm of the system's own.

A handler that never lets go of the interpreter (a regular expression that explodes, a C extension that
hangs) stops every thread of its process, the watchdog and the heartbeat too. Its leases end and others
take over, but the process would stay for ever, and its place with a supervisor would never be free. So
a thread keeps winding up an alarm; when nobody does any more, the signal ends the process, and says on
standard error where it stood. The messages in its hands are charged with a crash.

The system's timer, because it follows no clock that can be set; faulthandler's own may do so.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from .launch import is_own_process

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
    alarm = _Alarm(max(LEASES * lease.total_seconds(), SHORTEST))
    alarm.start()
    try:
        yield
    finally:
        alarm.stop()


class _Alarm:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stopped = False
        self._lock = threading.Lock()

    def start(self) -> None:
        with suppress(AttributeError, OSError, RuntimeError, ValueError):  # standard error is no file
            faulthandler.register(signal.SIGALRM, file=sys.stderr, chain=True)
        self._wind()
        threading.Thread(target=self._keep_winding, name="alarm", daemon=True).start()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.unregister(signal.SIGALRM)

    def _wind(self) -> None:
        with self._lock:
            if not self._stopped:
                signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def _keep_winding(self) -> None:
        while not self._stopped:
            self._wind()
            time.sleep(self._seconds / WINDINGS)
