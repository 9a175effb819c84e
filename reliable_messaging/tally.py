"""Log lines of a flood: some of them, and then how many more there were."""

from __future__ import annotations

import logging
import threading

from . import clock, logs

MOST_SHOWN = 100
"""Lines in a second. Nobody reads more, and to write them would cost a worker as much as its messages."""


class Tally:
    """Off, unless somebody says that nothing but a terminal listens: what keeps logs gets every line."""

    def __init__(self) -> None:
        self.is_on = False
        self._lock = threading.Lock()
        self._second = 0
        self._shown = 0
        self._counted = 0

    def shows(self, count: int) -> int:
        """How many of so many get a line each; the others are only counted."""
        if not self.is_on:
            return count
        if int(clock.monotonic()) != self._second:
            self.sum_up()
        with self._lock:
            shown = min(count, MOST_SHOWN - self._shown)
            self._shown += shown
            self._counted += count - shown
        return shown

    @property
    def has_more(self) -> bool:
        """Whether there is something left to be told."""
        return self._counted > 0

    def sum_up(self) -> None:
        """Tell how many were not told, and begin again."""
        with self._lock:
            counted, self._counted = self._counted, 0
            self._second, self._shown = int(clock.monotonic()), 0
        if counted:
            logs.event(logging.INFO, "more messages done", count=counted)


done = Tally()
"""Of messages that are done: what fails is told in any case."""
