"""A row that holds a slot: stored, or merged into the one that waits in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.models import Case, When
from django.db.models.expressions import DatabaseDefault
from django.db.models.functions import Greatest, Least

from .. import clock
from ..models import OutboxMessage, Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A unique column that a row holds only while it is ready."""

    column: str
    merge: Callable[[Any], dict[str, Any]]
    """What the row that waits takes from a new one."""


def store_once(row: Any, alias: str, slot: Slot) -> Any:
    """Insert the row, or merge it into the ready one that holds its slot.

    Either way that one stays locked until our commit. Without the lock a worker could run it with
    the old payload before our change is visible, and the update would be lost.
    """
    rows = type(row)._base_manager.using(alias)
    merge = slot.merge(row)
    holder = _lock_holder(row, alias, slot)
    while holder is None:  # once, as a rule: someone may take the slot, or lose it, between two statements
        _insert(row, alias)
        holder = rows.filter(pk=row.pk).first() or _lock_holder(row, alias, slot)
    if holder.pk != row.pk:
        rows.filter(pk=holder.pk).update(**merge)
        holder.refresh_from_db()
    return holder


def _insert(row: Any, alias: str) -> None:
    """Insert it, unless someone has taken the slot since we looked."""
    rows = type(row)._base_manager.using(alias)
    if connections[alias].features.supports_update_conflicts_with_target:
        rows.bulk_create([row], ignore_conflicts=True)
    else:  # there, to ignore conflicts would be to ignore every other error too
        rows.bulk_create([row], update_conflicts=True, update_fields=["payload", "headers"])


def _lock_holder(row: Any, alias: str, slot: Slot) -> Any:
    """The ready one that holds the row's slot, locked.

    Found first and locked by its primary key then: InnoDB would lock the slot's index entry before
    the row, a claim locks them the other way round, and the two would deadlock.
    """
    rows, wanted = type(row)._base_manager.using(alias), getattr(row, slot.column)
    found = rows.filter(**{slot.column: wanted}).values_list("pk", flat=True).first()
    if found is None:
        return None
    holder = rows.select_for_update().filter(pk=found).first()
    return holder if holder is not None and getattr(holder, slot.column) == wanted else None


def _merge_messages(row: OutboxMessage) -> dict[str, Any]:
    """The later payload, the earlier due time, the greater priority, the later expiry; none is the latest."""
    lives_on = None
    if row.expires_at is not None:
        later = Greatest("expires_at", row.expires_at)
        lives_on = Case(When(expires_at__isnull=True, then=None), default=later)
    return {
        "payload": row.payload,
        "headers": row.headers,
        "due_at": Least("due_at", _due(row)),
        "priority": Greatest("priority", row.priority),
        "expires_at": lives_on,
    }


MOVED = (
    *("topic", "payload", "headers", "queue", "priority", "destination", "stream", "max_attempts"),
    *("correlation_id", "causation_id", "time_to_live"),
)


def _move_timer(row: Timer) -> dict[str, Any]:
    return {"due_at": _due(row), **{name: getattr(row, name) for name in MOVED}}


def _due(row: OutboxMessage | Timer) -> Any:
    return clock.now() if isinstance(row.due_at, DatabaseDefault) else row.due_at


DEDUPLICATED = Slot(column="dedup_slot", merge=_merge_messages)
NAMED = Slot(column="name_slot", merge=_move_timer)
