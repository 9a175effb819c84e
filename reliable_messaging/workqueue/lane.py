"""A lane is one queue and one priority band: what the claim index can answer by its first entry."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

FIRST_ID = UUID(int=0)


class Mark(NamedTuple):
    """A place in the order of a lane."""

    due_at: datetime
    id: UUID


@dataclass(frozen=True, slots=True, order=True)
class Lane:
    queue: str
    priority: int
    mark: Mark | None = field(default=None, compare=False)
    """The low-water mark: nothing up to here was unclaimed when somebody last looked, so a claim begins
    behind it. Else it would walk, again and again, past the index entries of all that was claimed
    before, which stay until the oldest snapshot that is open anywhere on the server has ended.

    What turns up below it later (a transaction that committed late, a message that was released) is
    found by the next look, which begins at the start."""
