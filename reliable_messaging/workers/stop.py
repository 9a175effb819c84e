"""Stopping on SIGTERM and SIGINT: gently first, at once on the second."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .. import clock

STANDARD_ERROR = 2
ECHO = 0.25
"""Some signal a process and then its group, as timeout(1) does: the same signal again so soon was not sent by
somebody who insists."""
GOODBYE = "Told to stop a second time: process %d ends at once. What it ran falls due when its lease ends.\n"


class StopFlag:
    """Set once, read by everyone."""

    def __init__(self, on_request: Callable[[], None]) -> None:
        self.requested = False
        self._on_request = on_request

    def request(self) -> None:
        self.requested = True
        self._on_request()

    def is_requested(self) -> bool:
        return self.requested


def _nothing() -> None:
    pass


@contextmanager
def stopping_on_signals(flag: StopFlag, *, at_once: Callable[[], None] = _nothing) -> Iterator[None]:
    first: tuple[int, float] | None = None  # not flag.requested: a parent may have asked, and does not insist

    def handle(number: int, _frame: Any) -> None:
        nonlocal first
        if first is None:
            first = number, clock.monotonic()
            flag.request()
        elif first[0] != number or clock.monotonic() - first[1] > ECHO:
            os.write(STANDARD_ERROR, (GOODBYE % os.getpid()).encode())  # no logging: it takes locks
            at_once()
            os._exit(128 + number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
