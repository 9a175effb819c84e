"""What callers may pass to the verbs: seconds or timedelta, UUID or text, exception or text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from ..conf import get_settings
from ..exceptions import InvalidId
from ..report import ErrorReport, FailureKind
from ..retry import LONGEST_WAIT, default_backoff


def as_uuids(ids: Iterable[UUID | str]) -> list[UUID]:
    found = []
    for value in ids:
        try:
            found.append(value if isinstance(value, UUID) else UUID(value))
        except (AttributeError, TypeError, ValueError):
            raise InvalidId(f"{value!r} is not an id: pass an id, as a UUID or as text.") from None
    return found


def as_duration(value: float | timedelta) -> timedelta:
    duration = value if isinstance(value, timedelta) else timedelta(seconds=value)
    if duration < timedelta(0):
        raise ValueError("A delay or lease cannot be negative.")
    return duration


def as_lease(value: float | timedelta | None) -> timedelta:
    return get_settings().LEASE if value is None else as_duration(value)


def as_delay(value: float | timedelta | None, item: Any, *, transient: bool) -> timedelta:
    if value is not None:
        return min(as_duration(value), LONGEST_WAIT)
    return default_backoff(item.transient_failures if transient else item.failures)


def as_report(error: BaseException | str, kind: FailureKind) -> ErrorReport:
    if isinstance(error, BaseException):
        return ErrorReport.from_exception(error, kind)
    return ErrorReport.plain("Error", error, kind)
