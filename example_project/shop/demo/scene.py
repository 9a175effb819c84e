"""What every step has at hand: a place for its files, the worker processes, a voice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from reliable_messaging.models import OutboxMessage, Status

from ..processes import Children


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    directory: Path
    workers: Children
    say: Callable[[str], None]


def has_status(message_id: UUID, status: Status) -> Callable[[], bool]:
    return OutboxMessage.objects.filter(pk=message_id, status=status).exists


def error_of(message: OutboxMessage) -> str:
    """Its last error without the path to the exception's module, which a reader need not know."""
    path, _, text = message.last_error.partition(": ")
    return f"{path.rpartition('.')[2]}: {text}"
