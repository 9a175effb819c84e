"""A worker process whose wall clock is wrong; its monotonic clock is left alone.

``TEST_CLOCK`` is the number of seconds that it is ahead, or ``jumping``: an hour ahead and an hour behind
in turn. Waiting for a lock with a time-out goes by the wrong clock too, as it does on systems whose C
library cannot wait by the monotonic one (musl; Pythons that were built for an old glibc).
"""

from __future__ import annotations

import os
import threading
import time
from datetime import datetime, timedelta, tzinfo

VARIABLE = "TEST_CLOCK"
JUMPING = "jumping"
HOUR = 3600.0
JUMP_EVERY = 2.5  # longer than two leases of the scenario
SLICE = 0.01

_right_time, _right_time_ns, _right_wait = time.time, time.time_ns, threading.Event.wait


def put_wrong() -> None:
    """If the environment asks for it. Whoever has imported ``time`` or one of these modules sees it."""
    if VARIABLE not in os.environ:
        return
    from django.utils import timezone

    from reliable_messaging import clock

    time.time = _time
    time.time_ns = lambda: _right_time_ns() + int(_ahead() * 1e9)
    for module in (clock, timezone):
        module.datetime = WrongDatetime  # type: ignore[attr-defined]
    threading.Event.wait = _wait  # type: ignore[method-assign]


class WrongDatetime(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(seconds=_ahead())


def _ahead() -> float:
    given = os.environ[VARIABLE]
    if given != JUMPING:
        return float(given)
    return HOUR if int(time.monotonic() / JUMP_EVERY) % 2 else -HOUR


def _time() -> float:
    return _right_time() + _ahead()


def _wait(self: threading.Event, timeout: float | None = None) -> bool:
    if timeout is None:
        return _right_wait(self)
    until = _time() + timeout
    while not _right_wait(self, SLICE):
        if _time() >= until:
            return False
    return True
