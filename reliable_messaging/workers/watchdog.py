"""The last guard: a process that cannot keep its leases, or is stuck, must not go on.

Touches no database, so that nothing can hang it. A connection through a proxy that swallows
packets hangs past every time-out, and a thread cannot be ended from outside: only the process can.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from ..logs import logger

CHECK_SECONDS = 0.25
Reason = Callable[[], str | None]
"""Why the process must end at once; None when it need not."""


@dataclass(slots=True, kw_only=True)
class Watchdog:
    reasons: tuple[Reason, ...]
    """Asked in turn, several times a second."""
    end_process: Callable[[], object]
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def check(self) -> None:
        for reason in self.reasons:
            words = reason()
            if words is not None:
                logger.critical("%s: this process ends, and another takes over.", words)
                self.end_process()
                return

    def _run(self) -> None:
        while not self._stop.wait(CHECK_SECONDS):
            self.check()
