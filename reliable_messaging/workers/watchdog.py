"""The last guard: a process that cannot keep its leases, or is stuck, must not go on.

Touches no database, so that nothing can hang it. A connection through a proxy that swallows
packets hangs past every time-out, and a thread cannot be ended from outside: only the process can.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

CHECK_SECONDS = 0.25
Reason = Callable[[], str | None]
"""Why the process must end at once; None when it need not."""


@dataclass(slots=True, kw_only=True)
class Watchdog:
    reasons: tuple[Reason, ...]
    """Asked in turn, several times a second."""
    end_process: Callable[[str], object]
    """Is told the reason; does not come back."""
    _stopped: bool = field(default=False)

    def start(self) -> None:
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped = True

    def check(self) -> None:
        for reason in self.reasons:
            words = reason()
            if words is not None:
                self.end_process(words)
                return

    def _run(self) -> None:
        while True:
            time.sleep(CHECK_SECONDS)  # waiting for an Event may go by the wall clock, which jumps
            if self._stopped:
                return
            try:
                self.check()
            except Exception as exc:  # a process without its last guard must not go on either
                self.end_process(f"A guard failed with {exc!r}")
