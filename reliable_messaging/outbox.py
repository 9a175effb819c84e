"""The outbox: messages that are sent if, and only if, your transaction commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async

from . import clock
from .alias import choose_alias, require_transaction
from .announce import announce, tell_enqueued
from .conf import get_settings
from .exceptions import InvalidMessage
from .failpoints import hit
from .hooks import on_commit
from .message import Message, OutgoingMessage
from .models import OutboxMessage
from .outgoing import build_values
from .storing import store
from .storing.columns import Values
from .workqueue import WorkQueue
from .workqueue.deadlock import retrying_in_transaction

queue: WorkQueue[Message] = WorkQueue(
    OutboxMessage,
    retention=lambda: get_settings().OUTBOX_RETENTION,
    observer=announce,
    tells_within=lambda message: message.scheduled_for is not None,
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
    wanted = _checked(messages)
    if not wanted:
        return []
    # COPY takes values only, and they make an INSERT of many almost twice as fast.
    rows = _each_built(wanted, clock.read(alias)) if len(wanted) > 1 else [build_values(wanted[0])]

    def work() -> list[OutboxMessage]:
        stored = store(rows, alias)
        on_commit(alias, tell_enqueued, alias, stored)
        hit("enqueue-before-commit")
        return stored

    return retrying_in_transaction(alias, work)


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


def _checked(messages: Iterable[OutgoingMessage]) -> list[OutgoingMessage]:
    if isinstance(messages, OutgoingMessage):
        raise InvalidMessage(
            "enqueue_many takes several messages: put this one into a list, or call enqueue."
        )
    wanted = list(messages)
    for message in wanted:
        if not isinstance(message, OutgoingMessage):
            raise InvalidMessage(f"enqueue_many takes OutgoingMessage values, not {message!r}.")
    return wanted


def _each_built(messages: Sequence[OutgoingMessage], now: datetime) -> list[Values]:
    rows = []
    for number, message in enumerate(messages, 1):
        try:
            rows.append(build_values(message, now=now))
        except InvalidMessage as exc:
            raise type(exc)(f"Message {number} of {len(messages)}: {exc}") from exc
    return rows
