"""Keeping what went wrong, once for each kind of error of an item."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db.models import F

from .. import clock
from ..models import Failure
from .settlement import Transition


def record_failures(using: str, transitions: Iterable[Transition]) -> None:
    """Write the errors in the transaction of their settlement. The items' rows are locked by it,
    so no other worker writes failures of the same item."""
    failed = [t for t in transitions if t.error is not None]
    if not failed:
        return
    rows = Failure._base_manager.using(using)
    known = set(rows.filter(item_id__in=[t.item.id for t in failed]).values_list("item_id", "fingerprint"))
    new = []
    for transition in failed:
        error, item = transition.error, transition.item
        assert error is not None
        if (item.id, error.fingerprint) in known:
            rows.filter(item_id=item.id, fingerprint=error.fingerprint).update(
                count=F("count") + 1,
                attempt=item.attempts,
                last_at=clock.now(),
                kind=error.kind,
                message=error.message,
                traceback=error.traceback,
                worker_id=transition.worker_id,
            )
        else:
            new.append(
                Failure(
                    item_id=item.id,
                    fingerprint=error.fingerprint,
                    kind=error.kind,
                    attempt=item.attempts,
                    error_class=error.error_class,
                    message=error.message,
                    traceback=error.traceback,
                    worker_id=transition.worker_id,
                )
            )
    rows.bulk_create(new)


def forget_failures(using: str, item_ids: list[UUID]) -> None:
    """Failures go with their item."""
    if item_ids:
        Failure._base_manager.using(using).filter(item_id__in=item_ids)._raw_delete(using)
