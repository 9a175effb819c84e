"""Stopping on SIGTERM and SIGINT: gently first, at once on the second."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


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
    signals = 0  # not flag.requested: a parent may have asked as well, and that is no insisting

    def handle(number: int, _frame: Any) -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            at_once()
            os._exit(128 + number)
        flag.request()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
