"""What the contract suite needs to know of a kind of work item. A new kind adds a line to KINDS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reliable_messaging import jobs, outbox, timers
from reliable_messaging.models import RunOutcome, Status, WorkItem
from reliable_messaging.workqueue import WorkQueue
from tests.factories import JobRunFactory, OutboxMessageFactory, TimerFactory


@dataclass(frozen=True, kw_only=True)
class Kind:
    name: str
    queue: WorkQueue[Any]
    make: Callable[..., Any]
    """make(alias, **columns) → a saved row"""
    unclaimable: dict[str, Any]
    """Columns of a row that a plain claim must leave alone."""
    retention: str
    """The setting that says how long finished ones are kept."""
    kept_days: int = 7
    """Its default."""
    ended: dict[str, Any] = field(default_factory=dict)
    """Columns of a finished row that may be purged."""
    is_history: bool = False
    """Finished ones are kept for a while, whatever the setting says."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One kind of work item on one database."""

    kind: Kind
    using: str

    @property
    def queue(self) -> WorkQueue[Any]:
        return self.kind.queue.using(self.using)

    @property
    def model(self) -> type[WorkItem]:
        return self.kind.queue.model

    def make(self, **values: Any) -> Any:
        return self.kind.make(self.using, **values)

    def row(self, item: Any) -> Any:
        return self.model._base_manager.using(self.using).get(pk=item.id)

    def rows(self) -> Any:
        return self.model._base_manager.using(self.using)

    def claim_one(self, **options: Any) -> Any:
        (item,) = self.queue.claim(limit=1, **options)
        return item


KINDS = [
    Kind(
        name="outbox",
        queue=outbox.queue,
        make=OutboxMessageFactory.on,
        unclaimable={"stream": "order-1"},
        retention="OUTBOX_RETENTION",
    ),
    Kind(
        name="timer",
        queue=timers.queue,
        make=TimerFactory.on,
        unclaimable={"status": Status.CANCELLED},
        retention="TIMER_RETENTION",
    ),
    Kind(
        name="run",
        queue=jobs.queue,
        make=JobRunFactory.on,
        unclaimable={"held": True},
        retention="RUN_RETENTION",
        kept_days=30,
        ended={"outcome": RunOutcome.SUCCEEDED},
        is_history=True,
    ),
]
