"""The plain loops that the worker is compared with: a driver, one connection, no framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

TABLE = "benchapp_plainitem"
CHANNEL = "bench"

Row = tuple[Any, ...]
"""What a claim returns: id, topic, payload, headers, attempts, created_at, due_at."""


class PlainQueue(Protocol):
    """What anybody would write for one database, as fast as it goes."""

    def claim(self, batch: int) -> Sequence[Row]: ...

    def acknowledge(self, rows: Sequence[Row]) -> None: ...


class WakeableQueue(PlainQueue, Protocol):
    def listen(self) -> None: ...

    def wait(self, seconds: float) -> None:
        """Until somebody notifies, or so long."""
