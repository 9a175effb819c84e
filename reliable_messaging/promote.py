"""Due items that become messages: timers, and the runs of jobs. For schedulers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from .announce import tell_enqueued
from .hooks import on_commit
from .message import DueItem, DueRun
from .models import OutboxMessage
from .storing import store
from .storing.columns import Values
from .workqueue import Lane, WorkQueue

D = TypeVar("D", bound=DueItem)

BATCH = 200
"""They are read with their payload, which may be a megabyte."""


def promote_due(queue: WorkQueue[D], lane: Lane | None, *, limit: int = BATCH) -> int:
    """Make the messages of what is due in a lane; how many. Without a lane, of suspects."""
    return len(queue.hand_over(lane, limit=limit, make=lambda due: _enqueue(due, queue.alias)))


def promote_all_due(queue: WorkQueue[D]) -> int:
    """What a scheduler does, here and now: for tests. How many there were."""
    promoted = 0
    while True:
        seen = queue.look(queue.discover_queues())
        lanes = [*seen.lanes, *([None] if seen.suspect_due else [])]
        more = sum(promote_due(queue, lane) for lane in lanes)
        if not more:  # none is due, or somebody has locked those that are
            return promoted
        promoted += more


def give_up(queue: WorkQueue[D], lane: Lane | None, error: BaseException) -> None:
    """The first one of the lane cannot become a message. It goes dead, with the reason."""
    items = queue.exchange([], lanes=[lane], limit=1).claimed if lane is not None else queue.claim_suspect()
    queue.fail(items, error)


def _enqueue(due: Sequence[DueItem], alias: str) -> None:
    stored = store([_message_values(item) for item in _not_promoted(due, alias)], alias)
    on_commit(alias, tell_enqueued, alias, stored)


def _not_promoted(due: Sequence[DueItem], alias: str) -> list[DueItem]:
    """One that somebody's own processor had in its hands, or that was requeued, may have its message."""
    doubtful = [item.id for item in due if item.attempts]
    there: set[Any] = set(
        OutboxMessage._base_manager.using(alias).filter(pk__in=doubtful).values_list("pk", flat=True)
        if doubtful
        else ()
    )
    return [item for item in due if item.id not in there]


def _message_values(item: DueItem) -> Values:
    """It was checked when it was made. The id is the item's: a second message could not be stored."""
    values: Values = {
        "id": item.id,
        "topic": item.topic,
        "payload": item.body,
        "headers": item.headers,
        "queue": item.queue,
        "priority": item.priority,
        "destination": item.destination,
        "stream": item.stream,
        "correlation_id": item.correlation_id,
        "causation_id": item.causation_id,
        "max_attempts": item.max_attempts,
        "created_at": item.claimed_at,
        "due_at": item.due_at,
    }
    if item.time_to_live is not None:
        values["expires_at"] = item.due_at + item.time_to_live
    if isinstance(item, DueRun):
        values["scheduled_for"] = item.scheduled_for
    return values
