"""What others see while our transaction is open."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connections

Answer = TypeVar("Answer")


def from_outside(question: Callable[[], Answer]) -> Answer:
    """Ask on a thread of its own, which has a database connection of its own."""

    def ask() -> Answer:
        try:
            return question()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(ask).result()
