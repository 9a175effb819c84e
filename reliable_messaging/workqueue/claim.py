"""Taking due items under a lease, so that nobody else works on them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, Q, QuerySet

from .. import clock
from ..failpoints import hit
from ..models import Status, WorkItem
from .horizon import not_expired
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
        due = _due(model, using).filter(
            _behind(lane.mark), crashes=0, queue=lane.queue, priority=lane.priority
        )
        rows += _lock(due, model, limit - len(rows))
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
    locked = (_lock(due.filter(pk=pk), model, 1) for pk in first)
    rows = next(filter(None, locked), [])
    return _take(model, using, rows, lease=lease, owner_token=owner_token, worker_id=worker_id)


def held_by(model: type[WorkItem], using: str, owner_token: UUID) -> list[Any]:
    """The items of a claim whose COMMIT was sent but not answered: if it happened, they are ours."""
    rows = rows_of(model, using).filter(status=Status.CLAIMED, owner_token=owner_token)
    return [
        model.claimed_value(row[:-1], owner_token=owner_token, claimed_at=row[-1], using=using)
        for row in rows.values_list(*model.claim_columns, clock.now())
    ]


def _due(model: type[WorkItem], using: str) -> QuerySet[Any, Any]:
    return rows_of(model, using).filter(
        model.claimable, not_expired(), status=Status.READY, due_at__lte=clock.now()
    )


def _behind(mark: Mark | None) -> Q:
    if mark is None:
        return Q()
    # The first comparison alone can be looked up in an index everywhere.
    return Q(due_at__gte=mark.due_at) & (Q(due_at__gt=mark.due_at) | Q(id__gt=mark.id))


def _lock(due: QuerySet[Any, Any], model: type[WorkItem], limit: int) -> list[tuple[Any, ...]]:
    # The rows are locked and fetched first, and the UPDATE names exactly these: an UPDATE over a
    # LIMITed subquery may take the same row twice, or more rows than the limit.
    locked = due.order_by("due_at", "id").select_for_update(skip_locked=True)
    return list(locked.values_list(*model.claim_columns, clock.now())[:limit])


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
    rows_of(model, using).filter(pk__in=[row[id_at] for row in rows]).update(
        status=Status.CLAIMED,
        owner_token=owner_token,
        claimed_by=worker_id,
        leased_until=clock.now() + lease,
        attempts=F("attempts") + 1,
        last_attempt_at=clock.now(),
        **model.ready_only,
    )
    return [
        model.claimed_value(
            (*row[:attempts_at], row[attempts_at] + 1, *row[attempts_at + 1 : -1]),
            owner_token=owner_token,
            claimed_at=row[-1],
            using=using,
        )
        for row in rows
    ]
