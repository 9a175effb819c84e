"""How long to wait between two looks, and how much to claim at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

SECONDS_OF_WORK = 1.0
"""Claim no more than about this much work in advance: what one worker hoards, another cannot do."""


@dataclass(slots=True, kw_only=True)
class PollDelay:
    """Fast while there is work; doubling up to a maximum when there is none."""

    minimum: timedelta
    maximum: timedelta
    _delay: timedelta = field(default=timedelta(0), init=False)

    def after(self, found_work: bool) -> timedelta:
        doubled = max(self.minimum, self._delay * 2)
        self._delay = self.minimum if found_work else min(doubled, self.maximum)
        return self._delay


@dataclass(slots=True, kw_only=True)
class Pace:
    """Learns how long messages take, and says how many make a good claim."""

    concurrency: int
    batch_size: int
    _seconds_each: float | None = field(default=None, init=False)

    def learn(self, duration: float) -> None:
        known = self._seconds_each
        self._seconds_each = duration if known is None else known * 0.8 + duration * 0.2

    def claim_size(self) -> int:
        if self._seconds_each is None:
            return min(self.batch_size, self.concurrency * 2)  # careful until something is known
        affordable = self.concurrency * SECONDS_OF_WORK / max(self._seconds_each, 1e-6)
        return int(max(min(affordable, self.batch_size), min(self.concurrency, self.batch_size)))
