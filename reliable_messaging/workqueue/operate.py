"""What an operator does to items: requeue, cancel, retry now. Each returns the items it changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import PositiveIntegerField, Q, Value
from django.db.models.functions import Least

from .. import clock
from ..models import Status, WorkItem
from .rows import rows_of
from .settlement import Transition

REVIVABLE = (Status.DEAD, Status.EXPIRED, Status.CANCELLED)


def requeue(
    model: type[WorkItem], using: str, ids: Sequence[UUID], *, ttl: timedelta | None
) -> list[Transition]:
    """Dead, expired or cancelled → due now with fresh budgets. One crash is remembered, so that
    what killed its workers stays a suspect and is run alone."""
    return _move(
        model,
        using,
        ids,
        Q(status__in=REVIVABLE),
        status=Status.READY,
        due_at=clock.now(),
        finished_at=None,
        failures=0,
        transient_failures=0,
        first_failed_at=None,
        crashes=Least("crashes", Value(1, output_field=PositiveIntegerField())),
        expires_at=None if ttl is None else clock.now() + ttl,
    )


def cancel(model: type[WorkItem], using: str, ids: Sequence[UUID]) -> list[Transition]:
    """Ready → cancelled. A claimed item is running and cannot be called back."""
    return _move(
        model,
        using,
        ids,
        Q(status=Status.READY),
        status=Status.CANCELLED,
        finished_at=clock.now(),
        **model.ready_only,
    )


def retry_now(model: type[WorkItem], using: str, ids: Sequence[UUID]) -> list[Transition]:
    """Ready but waiting → due now; its budgets stay as they are."""
    waiting = Q(status=Status.READY, due_at__gt=clock.now())
    return _move(model, using, ids, waiting, status=Status.READY, due_at=clock.now())


def postpone(model: type[WorkItem], using: str, ids: Sequence[UUID], due_at: Any) -> list[Transition]:
    """Ready → due then, sooner or later; its budgets stay as they are."""
    return _move(model, using, ids, Q(status=Status.READY), status=Status.READY, due_at=due_at)


def cancelled_from_the_start(at: datetime) -> dict[str, Any]:
    """The columns of an item that is stored only to tell that it never was to be done."""
    return {"status": Status.CANCELLED, "finished_at": at}


def _move(
    model: type[WorkItem],
    using: str,
    ids: Sequence[UUID],
    condition: Q,
    *,
    status: Status,
    **values: Any,
) -> list[Transition]:
    rows = rows_of(model, using)
    # In the order of ids, so that two operators with overlapping lists cannot deadlock.
    locked = rows.filter(condition, pk__in=ids).order_by("pk").select_for_update()
    found = list(locked.values_list(*model.claim_columns))
    items = [model.claimed_value(row, owner_token=None, claimed_at=None, using=using) for row in found]
    rows.filter(pk__in=[item.id for item in items]).update(status=status, **values)
    return [Transition(item=item, status=status) for item in items]
