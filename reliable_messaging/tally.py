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

    def takes(self) -> bool:
        """Whether this one is only counted, and needs no line."""
        if not self.is_on:
            return False
        with self._lock:
            is_next = int(clock.monotonic()) != self._second
            if not is_next and self._shown >= MOST_SHOWN:
                self._counted += 1
                return True
        if is_next:
            self.sum_up()
        self._shown += 1
        return False

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
