"""Taking due items under a lease, so that nobody else works on them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import F, Q, QuerySet

from .. import clock
from ..failpoints import hit
from ..models import Status, WorkItem
from . import by_id
from .horizon import not_expired
from .kept_query import SOME_MARK, KeptQuery
from .lane import Lane, Mark
from .rows import rows_of
from .selection import QueueSelection

SUSPECTS_TRIED = 5
"""Others may be claiming the first ones at this moment."""


def claim_lanes(
    model: type[WorkItem],
    using: str,
    *,
    lanes: Iterable[Lane],
    limit: int,
    lease: timedelta,
    owner_token: UUID,
    worker_id: UUID | None,
) -> list[Any]:
    """Claim up to ``limit`` due items from the lanes, in their order. Call inside a transaction.

    Suspects (crashes > 0) are left alone: what killed one worker must not take a batch of
    innocent neighbours with it.
    """
    rows: list[tuple[Any, ...]] = []
    for lane in lanes:
        if len(rows) >= limit:
            break
        query = _lane_query(model, using, lane, limit - len(rows), lane.mark is not None, clock.travelled())
        rows += query.fetch(using, lane.mark)
    return _take(model, using, rows, lease=lease, owner_token=owner_token, worker_id=worker_id)


def claim_suspect(
    model: type[WorkItem],
    using: str,
    *,
    selection: QueueSelection,
    lease: timedelta,
    owner_token: UUID,
    worker_id: UUID | None,
) -> list[Any]:
    """Claim one due suspect, alone. Call inside a transaction."""
    due = _due(model, using).filter(selection.condition(), crashes__gt=0)
    # Found first, locked one by one then: where no index serves the order, the sort would lock them all.
    first = list(due.order_by("due_at", "id").values_list("pk", flat=True)[:SUSPECTS_TRIED])
    locked = (list(_locked(due.filter(pk=pk), model, 1)) for pk in first)
    rows = next(filter(None, locked), [])
    return _take(model, using, rows, lease=lease, owner_token=owner_token, worker_id=worker_id)


def lock_due(model: type[WorkItem], using: str, lane: Lane | None, limit: int) -> list[tuple[Any, ...]]:
    """The first due rows of the lane, or of the suspects, as ``claim_columns`` and the database's time;
    locked, and left as they are. Call inside a transaction."""
    if lane is None:
        suspects = _due(model, using).filter(crashes__gt=0)
        rows: Iterable[tuple[Any, ...]] = _locked(suspects, model, limit)
    else:
        query = _lane_query(model, using, lane, limit, lane.mark is not None, clock.travelled())
        rows = query.fetch(using, lane.mark)
    return list(_in_utc(using, rows))


def held_by(model: type[WorkItem], using: str, owner_token: UUID) -> list[Any]:
    """The items of a claim whose COMMIT was sent but not answered: if it happened, they are ours."""
    rows = rows_of(model, using).filter(status=Status.CLAIMED, owner_token=owner_token)
    return [
        model.claimed_value(row[:-1], owner_token=owner_token, claimed_at=row[-1], using=using)
        for row in _in_utc(using, rows.values_list(*model.claim_columns, clock.now()))
    ]


def _due(model: type[WorkItem], using: str) -> QuerySet[Any, Any]:
    return rows_of(model, using).filter(
        model.claimable, not_expired(), status=Status.READY, due_at__lte=clock.now()
    )


@lru_cache(maxsize=64)
def _lane_query(
    model: type[WorkItem], using: str, lane: Lane, limit: int, marked: bool, _travelled: timedelta
) -> KeptQuery:
    """Worked out once for a lane and a limit, wherever the mark is: that costs more than to execute it."""
    due = _due(model, using).filter(
        _behind(SOME_MARK if marked else None), crashes=0, queue=lane.queue, priority=lane.priority
    )
    return KeptQuery.of(_locked(due, model, limit))


def _behind(mark: Mark | None) -> Q:
    if mark is None:
        return Q()
    # The first comparison alone can be looked up in an index everywhere.
    return Q(due_at__gte=mark.due_at) & (Q(due_at__gt=mark.due_at) | Q(id__gt=mark.id))


def _locked(due: QuerySet[Any, Any], model: type[WorkItem], limit: int) -> QuerySet[Any, Any]:
    # The rows are locked and fetched first, and the UPDATE names exactly these: an UPDATE over a
    # LIMITed subquery may take the same row twice, or more rows than the limit.
    locked = due.order_by("due_at", "id").select_for_update(skip_locked=True)
    return locked.values_list(*model.claim_columns, clock.now())[:limit]


def _take(
    model: type[WorkItem],
    using: str,
    rows: list[tuple[Any, ...]],
    *,
    lease: timedelta,
    owner_token: UUID,
    worker_id: UUID | None,
) -> list[Any]:
    if not rows:
        return []
    hit("claim-locked")
    id_at = model.claim_columns.index("id")
    attempts_at = model.claim_columns.index("attempts")
    taken = {
        "status": Status.CLAIMED,
        "owner_token": owner_token,
        "claimed_by": worker_id,
        "leased_until": clock.now() + lease,
        "attempts": F("attempts") + 1,
        "last_attempt_at": clock.now(),
        **model.ready_only,
    }
    by_id.update(model, using, [row[id_at] for row in rows], taken)
    return [
        model.claimed_value(
            (*row[:attempts_at], row[attempts_at] + 1, *row[attempts_at + 1 : -1]),
            owner_token=owner_token,
            claimed_at=row[-1],
            using=using,
        )
        for row in _in_utc(using, rows)
    ]


def _in_utc(using: str, rows: Iterable[tuple[Any, ...]]) -> Iterable[tuple[Any, ...]]:
    """Whatever zone DATABASES has for the connection: a handler is to see the same on every path."""
    if connections[using].settings_dict["TIME_ZONE"] is None:
        return rows
    return [tuple(clock.as_utc(v) if isinstance(v, datetime) else v for v in row) for row in rows]
