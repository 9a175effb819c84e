"""Which due times become runs, and which is next: arithmetic, without a database."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from ..cron import Schedule
from ..models import Misfire

MOST = 500
"""In one transaction. A job that runs every second, and whose scheduler was away for a day, has 86,400."""


class DueTimes(NamedTuple):
    runs: list[datetime]
    next: datetime | None
    """The first that is not among them, due or not. None: there never is one again."""
    missed: bool
    """Whether some were left out, or run as one."""


def due_times(
    schedule: Schedule, *, first: datetime, now: datetime, misfire: str, grace: timedelta, most: int = MOST
) -> DueTimes:
    """From ``first``, which is due, ``most`` of them. Those that are late by no more than the grace are in
    time."""
    if now - first <= grace or misfire == Misfire.ALL:
        return _each(schedule, first, now, most, missed=False)
    if misfire == Misfire.ONCE:
        latest = schedule.latest(first, now)
        if latest is None:  # it was planned by a schedule that has changed since, past our checks
            return DueTimes([], schedule.next_after(now), missed=True)
        return DueTimes([latest], schedule.next_after(latest), missed=latest != first)
    in_time = schedule.next_after(now - grace - timedelta(microseconds=1))
    if in_time is None or in_time > now:
        return DueTimes([], in_time, missed=True)
    return _each(schedule, in_time, now, most, missed=True)


def _each(schedule: Schedule, first: datetime, now: datetime, most: int, *, missed: bool) -> DueTimes:
    runs = [first]
    following = schedule.next_after(first)
    while following is not None and following <= now and len(runs) < most:
        runs.append(following)
        following = schedule.next_after(following)
    return DueTimes(runs, following, missed)
