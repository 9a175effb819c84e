"""When to try again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from .conf import LONGEST_DURATION, get_settings

LONGEST_WAIT = LONGEST_DURATION
"""Longer ones are cut to it."""

BackoffPolicy = Callable[[int], timedelta]
"""From the number of earlier failures (0 for the first) to the time to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """``min(base · 2^n, maximum) + random jitter``."""

    base: timedelta
    maximum: timedelta
    jitter: timedelta = timedelta(0)

    def __call__(self, earlier_failures: int) -> timedelta:
        # 2^30 is past any maximum; an unbounded power would overflow timedelta.
        exponential = self.base.total_seconds() * 2 ** min(earlier_failures, 30)
        wait = min(exponential, self.maximum.total_seconds())
        return timedelta(seconds=wait + random.uniform(0, self.jitter.total_seconds()))


def default_backoff(earlier_failures: int) -> timedelta:
    """The policy of BACKOFF_BASE, BACKOFF_MAX and BACKOFF_JITTER."""
    conf = get_settings()
    policy = Backoff(base=conf.BACKOFF_BASE, maximum=conf.BACKOFF_MAX, jitter=conf.BACKOFF_JITTER)
    return policy(earlier_failures)
