"""What became of running one message, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ..report import ErrorReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    result: str | None = None
    """The handler's return value as JSON text; None when it returned None."""
    duration: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    error: ErrorReport
    permanent: bool = False
    delay: timedelta | None = None
    """How long to wait; None leaves it to the backoff policy."""
    duration: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """Not its fault: to be run again, charged to nothing."""

    delay: timedelta | None = None
    """How long to wait; None leaves it to the backoff policy."""


Outcome = Done | Failed | Released
