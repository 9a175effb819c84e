"""What every worker does besides: reap ended leases, mark what expired, purge what is old.

Bounded batches with SKIP LOCKED, so any number of workers may do it at once and none waits.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, Q, QuerySet

from .. import clock
from ..failpoints import hit
from ..ids import lowest_uuid7
from ..models import Status, WorkItem
from ..report import ErrorReport, FailureKind
from .failures import forget_failures, record_failures
from .rows import rows_of
from .settle import UNCLAIMED
from .settlement import Transition

BATCH = 500
BATCH_WITH_PAYLOAD = 100
"""Of rows that are read with their payload, which may be a megabyte."""
CLOCK_MARGIN = timedelta(hours=1)


def reap(model: type[WorkItem], using: str, *, max_crashes: int) -> list[Transition]:
    """Bring back items whose lease has ended; each is charged one crash. Call inside a transaction."""
    ended = rows_of(model, using).filter(status=Status.CLAIMED, leased_until__lte=clock.now())
    items = _lock(ended.order_by("leased_until"), model, using)
    error = ErrorReport.plain(
        "LeaseEnded", "its worker died, or lost the lease, before it settled", FailureKind.CRASH
    )
    owners = dict(_rows(model, using, items).values_list("pk", "claimed_by"))
    transitions = [
        Transition(
            item=item,
            status=Status.DEAD if item.crashes + 1 >= max_crashes else Status.READY,
            error=error,
            worker_id=owners[item.id],
        )
        for item in items
    ]
    charged = {**UNCLAIMED, "crashes": F("crashes") + 1, "last_error": str(error)}
    dead = [t.item for t in transitions if t.status == Status.DEAD]
    back = [t.item for t in transitions if t.status == Status.READY]
    _rows(model, using, back).update(status=Status.READY, due_at=clock.now(), **charged)
    _rows(model, using, dead).update(status=Status.DEAD, finished_at=clock.now(), **charged)
    record_failures(using, transitions)
    if transitions:
        hit("sweep")
    return transitions


def expire(model: type[WorkItem], using: str) -> list[Transition]:
    """Mark ready items whose time has passed. Claimed ones never expire. Call inside a transaction."""
    passed = rows_of(model, using).filter(status=Status.READY, expires_at__lte=clock.now())
    items = _lock(passed.order_by("expires_at"), model, using)
    _rows(model, using, items).update(status=Status.EXPIRED, finished_at=clock.now(), **model.ready_only)
    return [Transition(item=item, status=Status.EXPIRED) for item in items]


def purge(
    model: type[WorkItem],
    using: str,
    *,
    retention: timedelta | None,
    dead_retention: timedelta | None,
    after: UUID | None = None,
) -> tuple[int, UUID | None]:
    """Delete one batch of finished rows that are past retention, oldest first.

    Walks the primary key, which is in time order, so no index is kept for it. Returns how many
    went, and where the walk stopped (None: at its end). Call inside a transaction.
    """
    past = Q(pk__in=[])
    kept_for = []
    if retention is not None:
        finished = (Status.DONE, Status.EXPIRED, Status.CANCELLED)
        past |= Q(status__in=finished, finished_at__lt=clock.now() - retention)
        kept_for.append(retention)
    if dead_retention is not None:
        past |= Q(status=Status.DEAD, finished_at__lt=clock.now() - dead_retention)
        kept_for.append(dead_retention)
    if not kept_for:
        return 0, None
    rows = rows_of(model, using)
    if after is not None:
        rows = rows.filter(pk__gt=after)
    # No row finished before it was made, so younger ids need no look. Ids carry their producer's
    # clock and this bound is by ours, hence the margin; what goes is decided by finished_at alone.
    youngest = lowest_uuid7(clock.utcnow() - min(kept_for) + CLOCK_MARGIN)
    candidates = rows.filter(past, model.purgeable, pk__lt=youngest).order_by("pk")
    locked = candidates.select_for_update(skip_locked=True)
    ids = list(locked.values_list("pk", flat=True)[:BATCH])
    rows_of(model, using).filter(pk__in=ids)._raw_delete(using)
    forget_failures(using, model.with_failures_of_their_own(ids, using))
    return len(ids), ids[-1] if len(ids) == BATCH else None


def _lock(rows: QuerySet[Any, Any], model: type[WorkItem], using: str) -> list[Any]:
    locked = rows.select_for_update(skip_locked=True).values_list(*model.claim_columns)
    return [
        model.claimed_value(row, owner_token=None, claimed_at=None, using=using)
        for row in locked[:BATCH_WITH_PAYLOAD]
    ]


def _rows(model: type[WorkItem], using: str, items: list[Any]) -> QuerySet[Any, Any]:
    return rows_of(model, using).filter(pk__in=[item.id for item in items])
