"""The values people hand in and get back: OutgoingMessage, Message, DeadLetter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, make_dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from . import codec


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """What ``enqueue_many`` takes: the arguments of ``enqueue``, as a value."""

    topic: str
    payload: Any = None
    queue: str | None = None
    destination: str = ""
    stream: str = ""
    priority: int = 0
    delay: float | timedelta | None = None
    due_at: datetime | None = None
    expires_in: float | timedelta | None = None
    max_attempts: int | None = None
    correlation_id: str = ""
    headers: Mapping[str, Any] | None = None
    dedup_key: str | None = None


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A claimed message, as its handler sees it. Changing it changes nothing: it is a copy."""

    id: UUID
    topic: str
    body: str
    """The payload's exact text."""
    headers: Mapping[str, Any]
    queue: str
    priority: int
    destination: str
    stream: str
    sequence: int | None
    correlation_id: str
    causation_id: UUID | None
    created_at: datetime
    due_at: datetime

    attempts: int
    """Claims so far, this one included."""
    failures: int
    transient_failures: int
    crashes: int
    max_attempts: int
    first_failed_at: datetime | None
    last_error: str
    """What the last attempt ended with; empty before the first failure."""

    scheduled_for: datetime | None = None
    """When the run of a job was due, whenever this attempt is made. None: it is no job's."""

    owner_token: UUID | None = field(default=None, repr=False)
    """The fence: who settles this message must still hold this token."""
    claimed_at: datetime | None = None
    using: str = "default"
    """The database alias it lives in; write through it to commit together with the ack."""

    stop_requested: Callable[[], bool] = field(default=_never, repr=False, compare=False)

    @property
    def payload(self) -> Any:
        """The payload, decoded anew at each access: keep it in a variable."""
        return codec.decode(self.body)

    def told_to_stop_by(self, stop_requested: Callable[[], bool]) -> Message:
        """For the worker, before it hands the message out. Not a copy: that would cost as much as all
        else that happens to a message."""
        object.__setattr__(self, "stop_requested", stop_requested)
        return self

    @property
    def should_stop(self) -> bool:
        """True when the worker shuts down or lost its claim: a long handler should end now."""
        return self.stop_requested()


_Draft = make_dataclass("_Draft", [(f.name, Any) for f in fields(Message)], slots=True)
"""A message while it is being made: the same fields in the same places, and not frozen yet."""


def message_of_values(values: tuple[Any, ...]) -> Message:
    """The same as ``Message(...)`` with the values of its fields in their order, all but the last. To make a
    frozen dataclass takes six times as long, and this is on the way of every message."""
    message: Any = _Draft(*values, _never)
    message.__class__ = Message
    return message  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class DueItem:
    """What becomes a message when it is due; claimed by somebody's own processor, or becoming one."""

    id: UUID
    topic: str
    body: str
    headers: Mapping[str, Any]
    queue: str
    priority: int
    destination: str
    stream: str
    correlation_id: str
    causation_id: UUID | None
    time_to_live: timedelta | None
    created_at: datetime
    due_at: datetime
    attempts: int
    failures: int
    transient_failures: int
    crashes: int
    max_attempts: int
    first_failed_at: datetime | None
    last_error: str
    owner_token: UUID | None = field(repr=False)
    claimed_at: datetime | None
    using: str


@dataclass(frozen=True, slots=True)
class DueTimer(DueItem):
    name: str | None


@dataclass(frozen=True, slots=True)
class DueRun(DueItem):
    job: str
    scheduled_for: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What an ``@on_dead`` callback gets."""

    message: Message
    status: str
    """``dead`` or ``expired``."""
    error: str
    """The last error, or an empty text for a message that expired untried."""


current_message: ContextVar[Message | None] = ContextVar("reliable_messaging_message", default=None)
"""The message whose handler is running here; what it enqueues inherits its correlation id."""
