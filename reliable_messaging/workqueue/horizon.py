"""One look at the table: which lanes have due work, what else is overdue, and when to look again.

A lane is one queue and one priority band. Asking by equality on both lets the claim index answer
with its first entry; ordering over everything would walk every delayed row at each idle poll.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

from django.db import connections
from django.db.models import F, IntegerField, Q, QuerySet, Value

from .. import clock
from ..models import Status, WorkItem
from ..models.work_item import Priority
from .lane import FIRST_ID, Lane, Mark
from .rows import rows_of
from .selection import QueueSelection

BANDS = sorted(Priority.values, reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    lanes: tuple[Lane, ...] = ()
    """Those with due items, the most urgent band first."""
    suspect_due: bool = False
    lease_ended: bool = False
    expiry_passed: bool = False
    next_in: timedelta | None = None
    """Until the next of these falls due; None when nothing is in sight."""
    oldest: timedelta | None = None
    """How long the longest-waiting due item has been due."""


class _Sight(IntEnum):
    LANE = 0
    SUSPECT = 1
    LEASE = 2
    EXPIRY = 3


def discover_queues(model: type[WorkItem], using: str, selection: QueueSelection) -> tuple[str, ...]:
    """Every queue that has ready rows: a loose index scan, one step for each queue."""
    if selection.only is not None:
        return tuple(name for name in selection.only if name not in selection.exclude)
    found: list[str] = []
    ready = _ready(model, using).filter(crashes=0).order_by("queue")
    step = ready
    while (name := step.values_list("queue", flat=True).first()) is not None:
        found.append(name)
        step = ready.filter(queue__gt=name)
    return tuple(name for name in found if name not in selection.exclude)


def look(
    model: type[WorkItem], using: str, queues: Iterable[str], selection: QueueSelection, *, within: timedelta
) -> Horizon:
    """``within`` is how far it looks ahead for leases that will end."""
    rows = _first_rows(model, using, _View(tuple(queues), selection, within))
    lanes, waits, ages = [], [], []
    overdue = set()
    for sight, queue, priority, *moments in rows:
        at, now = map(clock.as_utc, moments)
        if at > now:
            waits.append(at - now)
            continue
        overdue.add(sight)
        if sight == _Sight.LANE:
            lanes.append(Lane(queue, priority, Mark(at, FIRST_ID)))
        if sight in (_Sight.LANE, _Sight.SUSPECT):
            ages.append(now - at)
    lanes.sort(key=lambda lane: -lane.priority)
    return Horizon(
        lanes=tuple(lanes),
        suspect_due=_Sight.SUSPECT in overdue,
        lease_ended=_Sight.LEASE in overdue,
        expiry_passed=_Sight.EXPIRY in overdue,
        next_in=min(waits, default=None),
        oldest=max(ages, default=None),
    )


class _View(NamedTuple):
    queues: tuple[str, ...]
    selection: QueueSelection
    within: timedelta


def _sights(model: type[WorkItem], using: str, view: _View) -> list[QuerySet[Any, Any]]:
    ready = _ready(model, using).filter(not_expired())
    lanes = [
        _sight(_Sight.LANE, ready.filter(crashes=0, queue=queue, priority=band), "due_at")
        for queue in view.queues
        for band in BANDS
    ]
    rows = rows_of(model, using)
    suspects = ready.filter(view.selection.condition(), crashes__gt=0)
    # Not to the end of the index: entries of claims that were settled long before their end may pile up
    # there, and what ends later than the next look needs no look now.
    ending = rows.filter(status=Status.CLAIMED, leased_until__lte=clock.now() + view.within)
    return [
        *lanes,
        _sight(_Sight.SUSPECT, suspects, "due_at"),
        _sight(_Sight.LEASE, ending, "leased_until"),
        _sight(_Sight.EXPIRY, rows.filter(status=Status.READY, expires_at__isnull=False), "expires_at"),
    ]


def _sight(sight: _Sight, rows: QuerySet[Any, Any], column: str) -> QuerySet[Any, Any]:
    return rows.order_by(column).values_list(
        Value(int(sight), output_field=IntegerField()), "queue", "priority", F(column), clock.now()
    )[:1]


def _first_rows(
    model: type[WorkItem], using: str, view: _View
) -> list[tuple[int, str, int, datetime, datetime]]:
    if not connections[using].features.supports_slicing_ordering_in_compound:
        # SQLite: no round trips to save.
        return [row for sight in _sights(model, using, view) for row in sight]
    sql, params = _compiled(model, using, view, clock.travelled())
    with connections[using].cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


@lru_cache(maxsize=32)
def _compiled(
    model: type[WorkItem], using: str, view: _View, _travelled: timedelta
) -> tuple[str, tuple[Any, ...]]:
    """One statement for all sights. Worked out once: that costs more than to execute it."""
    first, *others = _sights(model, using, view)
    sql, params = first.union(*others, all=True).query.get_compiler(using=using).as_sql()
    return sql, tuple(params)


def not_expired() -> Q:
    return Q(expires_at__isnull=True) | Q(expires_at__gt=clock.now())


def _ready(model: type[WorkItem], using: str) -> QuerySet[Any, Any]:
    return rows_of(model, using).filter(model.claimable, status=Status.READY)
