"""When a cron expression is due, in a time zone.

croniter does the arithmetic, on wall clocks without a zone. The zone is ours: time is cut into stretches of
one offset from UTC, and within a stretch a wall clock is a moment. What is left are their borders:

- Wall times that do not exist, because clocks were put forward (a gap): what would have been due among them
  is due once, at the first moment after the gap. If the hour is a wildcard, nothing is: its next one is near.
- Wall times that come twice, because clocks were put back (a fold): due the first time only. If the hour or
  the minute is a wildcard, due both times: "every five minutes" means five real minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from croniter import croniter

from .cron_syntax import MAX_LENGTH, normal_form
from .exceptions import InvalidCron, InvalidTimeZone

_SECOND = timedelta(seconds=1)
_SOME_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - wall clocks have no zone
# No zone of the tz database has two transitions within six days.
_DAY = timedelta(days=1)
_ZONE_NAME = re.compile(r"(?!right/|posix/|posixrules|localtime|Factory)[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")


def normalise(expression: str) -> str:
    """The form that is stored; or InvalidCron, also of one that never fires."""
    stored = normal_form(expression)
    _check_it_fires(stored)
    return stored


def as_zone(name: str) -> ZoneInfo:
    """The time zone of that name, or InvalidTimeZone."""
    # ZoneInfo refuses some of the others; the rest is no place, as a machine's own zone.
    if isinstance(name, str) and _ZONE_NAME.fullmatch(name):
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):  # unknown; not such a file; a folder, or too long
            pass
    shown = repr(name) if len(repr(name)) <= MAX_LENGTH else f"{repr(name)[:MAX_LENGTH]}…"
    if not isinstance(name, str):
        raise InvalidTimeZone(f"Give the time zone as text, such as 'Europe/Berlin', not {shown}.")
    raise InvalidTimeZone(
        f"There is no time zone {shown}. Use a name of the tz database, such as 'Europe/Berlin' or 'UTC'; "
        "where the system has no such database, install the package tzdata."
    )


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron expression in a time zone. ``Schedule.of`` checks both."""

    expression: str
    zone: ZoneInfo

    @classmethod
    def of(cls, expression: str, zone_name: str) -> Schedule:
        """InvalidCron or InvalidTimeZone if it makes no sense."""
        return cls(normalise(expression), as_zone(zone_name))

    def next_after(self, moment: datetime) -> datetime | None:
        """The first due time that is later, in UTC; None if the next 50 years, or the calendar, have none."""
        try:
            return self._next_after(_whole_second(moment))
        except OverflowError:  # past the year 9999
            return None

    def latest(self, first: datetime, until: datetime) -> datetime | None:
        """The last due time from ``first`` to ``until``, both included. Its cost does not grow with how many
        there are."""
        low, high = _whole_second(_utc(first) - timedelta.resolution), _whole_second(until)
        found = None
        # Later moments never have an earlier next due time, so that can be bisected.
        while low < high:
            middle = _whole_second(low + (high - low) / 2)
            due = self.next_after(middle)
            if due is None or due > high:
                high = middle
            else:
                found = low = due
        return found

    def times_after(self, moment: datetime) -> Iterator[datetime]:
        """All due times that are later, one after the other."""
        due = self.next_after(moment)
        while due is not None:
            yield due
            due = self.next_after(due)

    def _next_after(self, at: datetime) -> datetime | None:
        pattern = _pattern(self.expression)
        excluded = timedelta(0)
        while True:
            offset, repeated = stretch = self._stretch(at, pattern)
            wall = pattern.after(at.replace(tzinfo=None) + offset - excluded)
            if wall is None:
                return None
            due = (wall - offset).replace(tzinfo=timezone.utc)
            # No fold is longer than a day, and nothing is due in one that does not count.
            end = self._end(at, at + _DAY if repeated else due, stretch, pattern)
            if end is None:
                return due
            in_gap = not repeated and wall < end.astimezone(self.zone).replace(tzinfo=None)
            if in_gap and not pattern.every_hour:
                return end
            # The next stretch may begin with a due time.
            at, excluded = end, _SECOND

    def _stretch(self, at: datetime, pattern: _Pattern) -> tuple[timedelta, bool]:
        """The offset from UTC, and whether the wall times are a fold's second ones and do not count."""
        local = at.astimezone(self.zone)
        return local.utcoffset() or timedelta(0), bool(local.fold) and not pattern.both_passes

    def _end(
        self, at: datetime, until: datetime, stretch: tuple[timedelta, bool], pattern: _Pattern
    ) -> datetime | None:
        """Where the stretch ends, if that is not after ``until``."""
        while at < until:
            later = min(at + _DAY, until)
            if self._stretch(later, pattern) != stretch:
                break
            at = later
        else:
            return None
        while later - at > _SECOND:
            middle = _whole_second(at + (later - at) / 2)
            if self._stretch(middle, pattern) == stretch:
                at = middle
            else:
                later = middle
        return later


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    """An expression, as it applies to wall clocks."""

    parsed: Any
    every_hour: bool
    both_passes: bool

    def after(self, wall: datetime) -> datetime | None:
        try:
            # A copy: croniter notes where it is, and threads share this one.
            found: datetime = copy(self.parsed).get_next(datetime, start_time=wall)
        except ValueError:  # nothing in 50 years, or past the year 9999
            return None
        return found


@lru_cache(maxsize=1000)  # parsing takes several times as long as finding the next
def _pattern(stored: str) -> _Pattern:
    minute, hour = (_is_wild(written) for written in stored.split()[-5:-3])
    parsed = croniter(stored, 0.0, second_at_beginning=True)
    return _Pattern(parsed=parsed, every_hour=hour, both_passes=minute or hour)


def _is_wild(written: str) -> bool:
    return any(item.startswith("*") for item in written.split(","))


def _whole_second(moment: datetime) -> datetime:
    return _utc(moment).replace(microsecond=0)


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"A moment needs a time zone: {moment!r}.")
    return moment.astimezone(timezone.utc)


def _check_it_fires(stored: str) -> None:
    try:
        fires = _pattern(stored).after(_SOME_DAY)
    except Exception as exc:  # of any kind: croniter raises more than its own on what it does not understand
        raise InvalidCron(f"The cron expression {stored!r} cannot be used: {exc}.") from exc
    if fires is None:
        raise InvalidCron(f"The cron expression {stored!r} never fires: none of its months has such a day.")
