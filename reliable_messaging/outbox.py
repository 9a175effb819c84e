"""The outbox: messages that are sent if, and only if, your transaction commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.db.models import Case, When
from django.db.models.expressions import DatabaseDefault
from django.db.models.functions import Greatest, Least

from . import clock
from .alias import choose_alias, require_transaction
from .announce import announce, on_commit, tell_enqueued
from .conf import get_settings
from .exceptions import InvalidMessage
from .failpoints import hit
from .message import Message, OutgoingMessage
from .models import OutboxMessage
from .outgoing import build_row
from .workqueue import WorkQueue

queue: WorkQueue[Message] = WorkQueue(
    OutboxMessage, retention=lambda: get_settings().OUTBOX_RETENTION, observer=announce
)
"""The verbs, for people who write their own processors: claim, ack, abandon, fail, release, …"""


def enqueue(
    topic: str,
    payload: Any = None,
    *,
    queue: str | None = None,
    destination: str = "",
    stream: str = "",
    priority: int = 0,
    delay: float | timedelta | None = None,
    due_at: datetime | None = None,
    expires_in: float | timedelta | None = None,
    max_attempts: int | None = None,
    correlation_id: str = "",
    headers: Mapping[str, Any] | None = None,
    dedup_key: str | None = None,
    using: str | None = None,
) -> OutboxMessage:
    """Store a message for its topic's handler; returns the saved row.

    Inside ``transaction.atomic()`` the message lives and dies with that transaction: rolled back,
    it was never there. Outside, it commits alone (or is refused, with REQUIRE_ATOMIC). A worker
    runs it after the commit, at least once.

    ``payload`` is anything DjangoJSONEncoder takes. ``delay`` (seconds or timedelta) or ``due_at``
    (aware) postpone it. ``expires_in`` counts from the first due time. While a message with the
    same topic and ``dedup_key`` still waits, no second one is made: the waiting one takes the new
    payload and headers, the earlier due time and the greater priority, and is returned.

    Bad input raises InvalidMessage before anything is written; the transaction stays usable.
    """
    outgoing = OutgoingMessage(
        topic=topic,
        payload=payload,
        queue=queue,
        destination=destination,
        stream=stream,
        priority=priority,
        delay=delay,
        due_at=due_at,
        expires_in=expires_in,
        max_attempts=max_attempts,
        correlation_id=correlation_id,
        headers=headers,
        dedup_key=dedup_key,
    )
    return enqueue_many([outgoing], using=using)[0]


def enqueue_many(messages: Iterable[OutgoingMessage], *, using: str | None = None) -> list[OutboxMessage]:
    """Store many messages at once: all or none. Returns the saved rows, in the same order."""
    alias = choose_alias(using)
    if get_settings().REQUIRE_ATOMIC:
        require_transaction(alias)
    wanted = [_checked(message) for message in messages]
    if not wanted:
        return []
    # Values instead of an expression in each row: the INSERT of many is then almost twice as fast.
    now = clock.read(alias) if len(wanted) > 1 else None
    rows = [build_row(message, now=now) for message in wanted]
    with transaction.atomic(using=alias, savepoint=False):
        stored = _store(rows, alias)
        on_commit(alias, tell_enqueued, alias, stored)
        hit("enqueue-before-commit")
    return stored


async def aenqueue(topic: str, payload: Any = None, **options: Any) -> OutboxMessage:
    """``enqueue`` for async code. It cannot join a caller's transaction, because Django has no
    async transactions: the message commits alone. To tie it to a change, put both into one
    sync function and call that with ``sync_to_async``."""
    return await sync_to_async(enqueue)(topic, payload, **options)


async def aenqueue_many(
    messages: Iterable[OutgoingMessage], *, using: str | None = None
) -> list[OutboxMessage]:
    """``enqueue_many`` for async code, in a transaction of its own: see ``aenqueue``."""
    return await sync_to_async(enqueue_many)(messages, using=using)


def cancel(message_id: UUID | str, *, using: str | None = None) -> bool:
    """Cancel a message that still waits. False: it is running, finished or not there."""
    return bool(queue.using(using).cancel([message_id]))


def requeue(message_id: UUID | str, *, using: str | None = None) -> bool:
    """Revive a dead, expired or cancelled message: due now, with fresh budgets. False: it is none."""
    return bool(queue.using(using).requeue([message_id]))


def retry_now(message_id: UUID | str, *, using: str | None = None) -> bool:
    """Make a message that waits for its (next) time due now. False: it does not wait."""
    return bool(queue.using(using).retry_now([message_id]))


def _checked(message: OutgoingMessage) -> OutgoingMessage:
    if not isinstance(message, OutgoingMessage):
        raise InvalidMessage(f"enqueue_many takes OutgoingMessage values, not {message!r}.")
    return message


def _store(rows: list[OutboxMessage], alias: str) -> list[OutboxMessage]:
    plain = [row for row in rows if row.dedup_slot is None]
    OutboxMessage._base_manager.using(alias).bulk_create(plain)
    stored = {row.pk: row for row in plain}
    # Sorted, so that two transactions with the same keys lock them in the same order.
    for row in sorted((r for r in rows if r.dedup_slot), key=lambda r: str(r.dedup_slot)):
        stored[row.pk] = _store_once(row, alias)
    _read_times([row for row in plain if _has_unread_times(row)], alias)
    return [stored[row.pk] for row in rows]


def _store_once(row: OutboxMessage, alias: str) -> OutboxMessage:
    """Insert the row, or merge it into the ready one that holds its slot.

    Either way that one stays locked until our commit. Without the lock a worker could run it with
    the old payload before our change is visible, and the update would be lost.
    """
    rows = OutboxMessage._base_manager.using(alias)
    merge = _merge(row)
    holder = _lock_holder(row, alias)
    if holder is None:
        has_target = connections[alias].features.supports_update_conflicts_with_target
        rows.bulk_create(
            [row],
            update_conflicts=True,  # someone may have taken the slot since we looked
            update_fields=["payload", "headers"],
            unique_fields=["dedup_slot"] if has_target else None,
        )
        holder = rows.get(dedup_slot=row.dedup_slot)
    if holder.pk != row.pk:
        rows.filter(pk=holder.pk).update(payload=row.payload, headers=row.headers, **merge)
        holder.refresh_from_db()
    return holder


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


TIMES = ("created_at", "due_at", "expires_at")


def _has_unread_times(row: OutboxMessage) -> bool:
    return any(hasattr(getattr(row, name), "resolve_expression") for name in TIMES)


def _read_times(rows: list[OutboxMessage], alias: str) -> None:
    """Times that the database worked out and the INSERT did not return."""
    if rows:
        found = OutboxMessage._base_manager.using(alias).filter(pk__in=[row.pk for row in rows])
        times = {pk: values for pk, *values in found.values_list("pk", *TIMES)}
        for row in rows:
            for name, value in zip(TIMES, times[row.pk], strict=True):
                setattr(row, name, value)
