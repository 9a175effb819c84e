"""The last guard: a process that could not renew its leases must not go on acting on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta

from ..logs import logger
from .flights import Flights

EXIT_CODE = 75  # EX_TEMPFAIL: start me again


class Watchdog:
    """Touches no database, so that nothing can hang it. A connection through a proxy that swallows
    packets hangs past every time-out; meanwhile the lease ends and another worker runs the message.
    Atomic handlers need no guard: their own fenced ack undoes what they did."""

    def __init__(
        self,
        *,
        flights: Flights,
        lease: timedelta,
        excused: Callable[[], bool],
        exit_process: Callable[[int], object] = os._exit,
    ) -> None:
        self._flights = flights
        self._lease = lease.total_seconds()
        self._excused = excused
        self._exit = exit_process
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def check(self) -> None:
        if self._flights.overdue(self._lease) and not self._excused():
            logger.critical("No lease could be renewed in time while a handler was running: exiting.")
            self._exit(EXIT_CODE)

    def _run(self) -> None:
        while not self._stop.wait(self._lease / 10):
            self.check()
