"""Questions to a database that may be away for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from django.db import Error, connections

T = TypeVar("T")


def patiently(using: str, question: Callable[[], T], *, seconds: float = 60) -> T:
    """The answer, as soon as the database gives one: a fault may have taken our connection too."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return question()
        except Error:
            connections[using].close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
