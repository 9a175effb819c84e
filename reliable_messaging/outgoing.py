"""From what a caller wants sent to a row: every check happens here, before anything is written."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from . import clock, codec
from .conf import MOST_ATTEMPTS, get_settings
from .durations import as_duration
from .exceptions import InvalidDueTime, InvalidMessage
from .message import OutgoingMessage, current_message
from .models.work_item import Priority
from .names import KEY_LENGTH, TOPIC_LENGTH, check_name, check_queue
from .registry import registry
from .retry import LONGEST_WAIT

_PRIORITIES = tuple(Priority.values)


def build_values(outgoing: OutgoingMessage, *, now: datetime | None = None) -> dict[str, Any]:
    """The row's columns that are not as in every row; its times worked out by the database, or from
    ``now`` if that was read from it."""
    return {
        **_carried(outgoing),
        **_deduplication(outgoing),
        **_times(outgoing, get_settings().MESSAGE_TTL, now),
    }


def build_timer_values(
    outgoing: OutgoingMessage, *, name: str | None = None, now: datetime | None = None
) -> dict[str, Any]:
    """The columns of the timer that becomes such a message."""
    if outgoing.dedup_key is not None:
        raise InvalidMessage("A timer has no dedup_key: with a name there is one of it while it waits.")
    if outgoing.delay is None and outgoing.due_at is None:
        raise InvalidDueTime("Give delay or due_at: when is the timer due?")
    checked = None if name is None else check_name(name, "timer's name", max_length=KEY_LENGTH)
    lives = get_settings().MESSAGE_TTL if outgoing.expires_in is None else as_lifetime(outgoing.expires_in)
    return {
        **_carried(outgoing),
        "due_at": _times(replace(outgoing, expires_in=None), None, now)["due_at"],
        "time_to_live": lives,
        "name": checked,
        "name_slot": checked,
    }


def due_time(*, delay: Any, due_at: Any) -> Any:
    """As a column's value; exactly one of them must be given."""
    if delay is None and due_at is None:
        raise InvalidDueTime("Give delay or due_at: when is it due?")
    if delay is not None and due_at is not None:
        raise InvalidDueTime("Give delay or due_at, not both.")
    if delay is not None:
        return clock.now() + as_duration(delay, "delay", error=InvalidDueTime)
    return _moment(due_at)


def handled_as(topic: str, *, queue: Any, max_attempts: Any) -> dict[str, Any]:
    """What the topic's handler says where the caller says nothing."""
    handler = registry.find(topic)
    own_queue = handler.queue if handler else "default"
    own_attempts = (handler and handler.max_attempts) or get_settings().MAX_ATTEMPTS
    return {
        "queue": check_queue(own_queue if queue is None else queue),
        "max_attempts": own_attempts if max_attempts is None else check_max_attempts(max_attempts),
    }


def _carried(outgoing: OutgoingMessage) -> dict[str, Any]:
    limit = get_settings().MAX_PAYLOAD_BYTES
    topic = check_name(outgoing.topic, "topic", max_length=TOPIC_LENGTH)
    values = {
        "topic": topic,
        "payload": codec.encode(outgoing.payload, max_bytes=limit),
        "headers": codec.encode_headers(outgoing.headers, max_bytes=limit),
        "priority": check_priority(outgoing.priority),
        **handled_as(topic, queue=outgoing.queue, max_attempts=outgoing.max_attempts),
        **_origin(outgoing),
    }
    _refuse_what_is_not_there_yet(outgoing)
    return values


def _origin(outgoing: OutgoingMessage) -> dict[str, Any]:
    correlation_id = check_name(outgoing.correlation_id, "correlation id", max_length=KEY_LENGTH, empty=True)
    parent = current_message.get()
    if parent is None:
        return {"correlation_id": correlation_id}
    inherited = parent.correlation_id or str(parent.id)
    return {"correlation_id": correlation_id or inherited, "causation_id": parent.id}


def _deduplication(outgoing: OutgoingMessage) -> dict[str, Any]:
    if outgoing.dedup_key is None:
        return {}
    key = check_name(outgoing.dedup_key, "dedup_key", max_length=KEY_LENGTH)
    if outgoing.stream:
        raise InvalidMessage("dedup_key and stream cannot be used together: which place would it keep?")
    return {"dedup_key": key, "dedup_slot": dedup_slot(outgoing.topic, outgoing.destination, key)}


def dedup_slot(topic: str, destination: str, key: str) -> UUID:
    digest = hashlib.sha256(json.dumps([topic, destination, key]).encode()).digest()
    # A well-formed one: MariaDB's uuid type refuses others.
    return UUID(bytes=digest[:16], version=5)


def _times(outgoing: OutgoingMessage, ttl: timedelta | None, now: datetime | None) -> dict[str, Any]:
    """Without ``now``, nothing for a message that is due at once: the database's default is right."""
    if outgoing.delay is not None and outgoing.due_at is not None:
        raise InvalidDueTime("Give delay or due_at, not both.")
    times: dict[str, Any] = {} if now is None else {"created_at": now, "due_at": now}
    first_due: Any = clock.now() if now is None else now
    if outgoing.delay is not None:
        times["due_at"] = first_due = first_due + as_duration(outgoing.delay, "delay", error=InvalidDueTime)
    elif outgoing.due_at is not None:
        times["due_at"] = first_due = _moment(outgoing.due_at)
    lives = ttl if outgoing.expires_in is None else as_lifetime(outgoing.expires_in)
    if lives is not None:
        times["expires_at"] = first_due + lives
    return times


def as_lifetime(value: Any) -> timedelta:
    return as_duration(value, "expires_in", error=InvalidDueTime, zero=False)


def _moment(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidDueTime(f"due_at must be a datetime, not {value!r}.")
    if timezone.is_naive(value):
        raise InvalidDueTime(
            f"due_at has no time zone ({value!r}): use django.utils.timezone.now() or make_aware()."
        )
    try:
        moment = value.astimezone(dt.timezone.utc)
        distant = abs(moment - clock.utcnow()) > LONGEST_WAIT
    except OverflowError:
        distant = True
    if distant:
        raise InvalidDueTime(f"due_at is more than a hundred years away: {value!r}.")
    return moment


def check_priority(value: Any) -> int:
    if isinstance(value, bool) or value not in _PRIORITIES:
        raise InvalidMessage(f"priority must be 1 (high), 0 (normal) or -1 (low), not {value!r}.")
    return int(value)


def check_max_attempts(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_ATTEMPTS:
        raise InvalidMessage(
            f"max_attempts must be a whole number from 1 to {MOST_ATTEMPTS:,}, not {value!r}."
        )
    return int(value)


def _refuse_what_is_not_there_yet(outgoing: OutgoingMessage) -> None:
    if outgoing.stream:
        raise InvalidMessage("stream= is not supported yet: leave it empty.")
    if outgoing.destination:
        raise InvalidMessage("destination= is not supported yet: leave it empty.")
