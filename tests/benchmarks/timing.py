"""From a producer's commit to the start of the handler: what is sent, and what was waited for.

The clock starts when the producer knows of its commit. The server knew a little sooner, and a
fast consumer may be at work by then: a wait under a millisecond is right to some tenths only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import quantiles

from tests.services import RUN_DIR

from .databases import current
from .processes import Process
from .stamps import VARIABLE, read_stamps

STAMPS: Path = RUN_DIR / "stamps"
ENVIRONMENT = {VARIABLE: str(STAMPS)}
"""Of a process whose handlers stamp their starts."""
START_SECONDS = 30.0
DRAIN_SECONDS = 60.0
FIRST = -1

Send = Callable[[int], None]


class Commits:
    """When each message was committed, as far as its producer knows."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._at: dict[int, int] = {}
        self._lock = threading.Lock()

    def send(self, number: int, at: float) -> None:
        """Send the message of this number at that moment of the monotonic clock, or right now."""
        time.sleep(max(0.0, at - time.monotonic()))
        self._send(number)
        with self._lock:
            self._at[number] = time.monotonic_ns()

    def waits(self, process: Process) -> dict[int, float]:
        """Wait for all handlers; milliseconds from the commit of each message to its start."""
        process.wait_until(
            lambda: self._at.keys() <= read_stamps(STAMPS).keys(),
            f"{len(self._at)} messages were run",
            seconds=DRAIN_SECONDS,
            every=0.2,
        )
        starts = read_stamps(STAMPS)
        return {number: (starts[number] - at) / 1e6 for number, at in self._at.items()}


def start_afresh() -> None:
    STAMPS.unlink(missing_ok=True)
    current().empty()
    current().settle()


def wait_for_first(process: Process, send: Send) -> None:
    """Send one message and see it run: from now on the process is at work."""
    send(FIRST)
    process.wait_until(
        lambda: FIRST in read_stamps(STAMPS), "the first message was run", seconds=START_SECONDS
    )


def percentile(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]
