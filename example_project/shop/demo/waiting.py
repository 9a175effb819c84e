"""Waiting for something to become true, never longer than a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_SECONDS = 20.0
LOOK_EVERY_SECONDS = 0.05


class DeadlinePassed(Exception):
    """What was waited for did not happen in time."""


def wait_until(what: str, happened: Callable[[], bool], *, seconds: float = DEADLINE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise DeadlinePassed(f"not within {seconds:g} s: {what}")
        time.sleep(LOOK_EVERY_SECONDS)
