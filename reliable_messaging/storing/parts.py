"""Many rows in parts that a server takes as one statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from ..models import JobRun, OutboxMessage, Timer

R = TypeVar("R", OutboxMessage, Timer, JobRun)

MOST_AT_ONCE = 1_000_000
"""Characters of payload. MariaDB's default limit is 16 MiB, and it drops the connection of who sends more."""


def by_size(rows: Sequence[R]) -> Iterator[list[R]]:
    part: list[R] = []
    size = 0
    for row in rows:
        size += len(row.payload)
        if part and size > MOST_AT_ONCE:
            yield part
            part, size = [], len(row.payload)
        part.append(row)
    if part:
        yield part
