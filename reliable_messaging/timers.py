"""Timers: messages to come. A scheduler makes the message when its timer is due, exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import transaction

from . import clock
from .alias import choose_alias, require_transaction
from .announce import is_due_soon
from .conf import get_settings
from .durations import as_duration
from .exceptions import InvalidDueTime, InvalidId, InvalidMessage
from .hooks import on_commit
from .message import DueTimer, OutgoingMessage
from .models import Status, Timer
from .outgoing import build_timer_values, due_time
from .promote import promote_all_due
from .storing import NAMED, by_size, store_once
from .storing.columns import Values
from .wakeup import wake_schedulers
from .workqueue import Transition, WorkQueue
from .workqueue.deadlock import retrying_in_transaction

BATCH = 200
"""Rows of one INSERT."""


def _wake_schedulers(using: str, transitions: Sequence[Transition]) -> None:
    """The queue's observer: somebody has made a timer due by hand."""
    if any(transition.status == Status.READY for transition in transitions):
        on_commit(using, wake_schedulers, using)


queue: WorkQueue[DueTimer] = WorkQueue(
    Timer, retention=lambda: get_settings().TIMER_RETENTION, observer=_wake_schedulers
)
"""The verbs, for people who write their own processors: claim, ack, abandon, fail, release, …"""


def schedule(
    topic: str,
    payload: Any = None,
    *,
    delay: float | timedelta | None = None,
    due_at: datetime | None = None,
    name: str | None = None,
    queue: str | None = None,
    destination: str = "",
    stream: str = "",
    priority: int = 0,
    expires_in: float | timedelta | None = None,
    max_attempts: int | None = None,
    correlation_id: str = "",
    headers: Mapping[str, Any] | None = None,
    using: str | None = None,
) -> Timer:
    """A message that is enqueued when its time has come; returns the saved timer.

    It lives and dies with your transaction, as a message does. The message has the timer's id. With a
    ``name`` there is one such timer while it waits: scheduling again moves it, and everything it carries.
    ``expires_in`` counts from the due time.
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
    )
    alias = _alias(using)
    values = build_timer_values(outgoing, name=name)

    def work() -> Timer:
        timer = Timer(**values)
        if name is None:
            timer.save(using=alias, force_insert=True)
            timer.refresh_from_db(using=alias)
        else:
            timer = store_once(timer, alias, NAMED)
        _wake_on_commit(alias, [timer])
        return timer

    return retrying_in_transaction(alias, work)


def schedule_many(
    messages: Iterable[OutgoingMessage],
    *,
    spread: float | timedelta = 0,
    using: str | None = None,
) -> list[Timer]:
    """Many timers at once: all or none. With ``spread`` they fall due evenly over that time, and not all at
    the same moment."""
    wanted = list(messages)
    over = as_duration(spread, "spread", error=InvalidDueTime)
    alias = _alias(using)
    if not wanted:
        return []
    now = clock.read(alias)
    timers = [Timer(**values, created_at=now) for values in _each_built(wanted, now, over / len(wanted))]
    with transaction.atomic(using=alias, savepoint=False):
        for part in by_size(timers):
            Timer._base_manager.using(alias).bulk_create(part, batch_size=BATCH)
        _wake_on_commit(alias, timers)
    return timers


async def aschedule(topic: str, payload: Any = None, **options: Any) -> Timer:
    """``schedule`` for async code. It cannot join a caller's transaction: see ``aenqueue``."""
    return await sync_to_async(schedule)(topic, payload, **options)


def cancel(timer: UUID | str, *, using: str | None = None) -> bool:
    """By its id or its name. True: it still waited, and makes no message any more. False: it has fired, or it
    was never there."""
    bound = _queue(using)
    found = _pending(timer, bound.alias)
    return found is not None and bool(bound.cancel([found]))


def reschedule(
    timer: UUID | str,
    *,
    delay: float | timedelta | None = None,
    due_at: datetime | None = None,
    using: str | None = None,
) -> bool:
    """Another due time, by its id or its name. False: it has fired, or was never there."""
    moment = due_time(delay=delay, due_at=due_at)
    bound = _queue(using)
    found = _pending(timer, bound.alias)
    if found is None or not bound.postpone([found], moment):
        return False
    on_commit(bound.alias, wake_schedulers, bound.alias)
    return True


def fire_all_due(*, using: str | None = None) -> int:
    """What a scheduler does, here and now: for tests. How many there were."""
    return promote_all_due(_queue(using))


def _each_built(messages: Sequence[Any], now: datetime, step: timedelta) -> Iterator[Values]:
    for number, message in enumerate(messages):
        if not isinstance(message, OutgoingMessage):
            raise InvalidMessage(f"schedule_many takes OutgoingMessage values, not {message!r}.")
        try:
            values = build_timer_values(message, now=now)
        except InvalidMessage as exc:
            raise type(exc)(f"Message {number + 1} of {len(messages)}: {exc}") from exc
        yield {**values, "due_at": values["due_at"] + step * number}


def _pending(timer: UUID | str, alias: str) -> UUID | None:
    """The id of a timer that waits. A text is a name first: an id may be written as one too."""
    if not isinstance(timer, (str, UUID)):
        raise InvalidId(f"{timer!r} is neither the id nor the name of a timer: pass timer.pk, or the name.")
    rows = Timer._base_manager.using(alias)
    if isinstance(timer, str):
        named = rows.filter(name_slot=timer).values_list("pk", flat=True).first()
        return named or _as_uuid(timer)
    return timer


def _as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _alias(using: str | None) -> str:
    alias = choose_alias(using)
    if get_settings().REQUIRE_ATOMIC:
        require_transaction(alias)
    return alias


def _queue(using: str | None) -> WorkQueue[DueTimer]:
    return queue.using(choose_alias(using))


def _wake_on_commit(alias: str, timers: Sequence[Timer]) -> None:
    if any(is_due_soon(timer) for timer in timers):
        on_commit(alias, wake_schedulers, alias)
