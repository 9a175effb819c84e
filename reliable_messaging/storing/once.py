"""A row with a deduplication key: stored, or merged into the one that waits with the same key."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.models import Case, When
from django.db.models.expressions import DatabaseDefault
from django.db.models.functions import Greatest, Least

from .. import clock
from ..models import OutboxMessage


def store_once(row: OutboxMessage, alias: str) -> OutboxMessage:
    """Insert the row, or merge it into the ready one that holds its slot.

    Either way that one stays locked until our commit. Without the lock a worker could run it with
    the old payload before our change is visible, and the update would be lost.
    """
    rows = OutboxMessage._base_manager.using(alias)
    merge = _merge(row)
    holder = _lock_holder(row, alias)
    while holder is None:  # once, as a rule: someone may take the slot, or lose it, between two statements
        _insert(row, alias)
        holder = rows.filter(pk=row.pk).first() or _lock_holder(row, alias)
    if holder.pk != row.pk:
        rows.filter(pk=holder.pk).update(payload=row.payload, headers=row.headers, **merge)
        holder.refresh_from_db()
    return holder


def _insert(row: OutboxMessage, alias: str) -> None:
    """Insert it, unless someone has taken the slot since we looked."""
    rows = OutboxMessage._base_manager.using(alias)
    if connections[alias].features.supports_update_conflicts_with_target:
        rows.bulk_create([row], ignore_conflicts=True)
    else:  # there, to ignore conflicts would be to ignore every other error too
        rows.bulk_create([row], update_conflicts=True, update_fields=["payload", "headers"])


def _lock_holder(row: OutboxMessage, alias: str) -> OutboxMessage | None:
    """The ready message that holds the row's slot, locked.

    Found first and locked by its primary key then: InnoDB would lock the slot's index entry before
    the row, a claim locks them the other way round, and the two would deadlock.
    """
    rows = OutboxMessage._base_manager.using(alias)
    found = rows.filter(dedup_slot=row.dedup_slot).values_list("pk", flat=True).first()
    if found is None:
        return None
    holder: OutboxMessage | None = rows.select_for_update().filter(pk=found).first()
    return holder if holder is not None and holder.dedup_slot == row.dedup_slot else None


def _merge(row: OutboxMessage) -> dict[str, Any]:
    """The earlier due time, the greater priority, the later expiry (none is the latest)."""
    due_at = clock.now() if isinstance(row.due_at, DatabaseDefault) else row.due_at
    lives_on = None
    if row.expires_at is not None:
        later = Greatest("expires_at", row.expires_at)
        lives_on = Case(When(expires_at__isnull=True, then=None), default=later)
    return {
        "due_at": Least("due_at", due_at),
        "priority": Greatest("priority", row.priority),
        "expires_at": lives_on,
    }
