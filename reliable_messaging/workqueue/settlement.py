"""The values that go into and come out of the queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from ..models import Status
from ..report import ErrorReport


class Claimed(Protocol):
    """What the queue needs to know of a claimed item to settle it."""

    @property
    def id(self) -> UUID: ...
    @property
    def owner_token(self) -> UUID | None: ...
    @property
    def claimed_at(self) -> datetime | None: ...
    @property
    def attempts(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def transient_failures(self) -> int: ...
    @property
    def crashes(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def first_failed_at(self) -> datetime | None: ...


C = TypeVar("C", bound=Claimed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """→ done. ``result`` is JSON text to keep."""

    item: Any
    result: str | None = None
    duration: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """→ ready after ``delay``, charged to the budget of the error's kind; dead when that is used up."""

    item: Any
    error: ErrorReport
    delay: timedelta
    duration: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """→ dead now."""

    item: Any
    error: ErrorReport
    duration: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """→ ready, charged to nothing; at its old due time, or after ``delay``."""

    item: Any
    delay: timedelta | None = None


Settlement = Ack | Abandon | Fail | Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """An item has moved to a status; told to the queue's observer in the same transaction."""

    item: Any
    status: Status
    error: ErrorReport | None = None
    delay: timedelta | None = None
    duration: float = 0.0
    result: str | None = None
    worker_id: UUID | None = None
    """Who ran it, or died over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange(Generic[C]):
    """What one exchange did."""

    claimed: list[C]
    lost: list[C]
    """Items that were to be settled, but whose claim someone else has by now."""
