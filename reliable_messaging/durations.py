"""How long something takes: what callers may say, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from .conf import LONGEST_DURATION


def as_duration(value: Any, what: str, *, error: type[Exception], zero: bool = True) -> timedelta:
    """Seconds or a timedelta, as a timedelta; ``error`` says what is wrong with anything else."""
    given = value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            value = timedelta(seconds=value)
        except (OverflowError, ValueError):
            raise error(f"{what} is out of range: {value!r}.") from None
    if not isinstance(value, timedelta):
        raise error(f"{what} must be seconds or a timedelta, not {given!r}.")
    if value < timedelta(0):
        raise error(f"{what} cannot be negative: {given!r}.")
    if not value and not zero:
        raise error(f"{what} must be positive, not {given!r}.")
    if value > LONGEST_DURATION:
        raise error(f"{what} is more than a hundred years: {given!r}.")
    return value
