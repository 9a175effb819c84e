"""What each kind of bad handler must come to, on each database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import connections

from reliable_messaging import Message, handler
from tests.testapp.models import Effect

DONE, OWN, TRANSIENT = "done", "own", "transient"
"""Acknowledged, or charged to the one or the other budget at its first attempt."""
EVERYWHERE = ("sqlite", "postgresql", "mysql")
ROW_LOCKING = EVERYWHERE[1:]
OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    work: Callable[[Message], Any]
    ends: str = OWN
    differently: Mapping[str, str] = field(default_factory=dict)
    """How it ends on a database where it ends in another way."""
    databases: tuple[str, ...] = EVERYWHERE
    keeps: int = 0
    """Effects that stay when it fails: it committed them past everything, and nothing can undo that."""
    tells: str = ""
    """Words of the error."""

    def end(self, vendor: str) -> str:
        return self.differently.get(vendor, self.ends)

    @property
    def topic(self) -> str:
        return f"bad.{self.name}"

    def __call__(self, message: Message) -> Any:
        Effect.objects.using(message.using).create(name=self.name, message_id=message.id)
        # What is charged to the infrastructure is tried again for a day: it behaves then.
        once = self.end(connections[message.using].vendor) == TRANSIENT
        return None if once and message.attempts > 1 else self.work(message)


KINDS: dict[str, Kind] = {}


def bad(**options: Any) -> Callable[[Callable[[Message], Any]], Kind]:
    """Declare one; its topic is known to worker processes too, and dies at its first own failure."""

    def declare(work: Callable[[Message], Any]) -> Kind:
        kind = Kind(name=work.__name__, work=work, **options)
        KINDS[kind.name] = kind
        handler(kind.topic, max_attempts=1)(kind)
        return kind

    return declare
