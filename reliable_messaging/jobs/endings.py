"""Ends of runs that no settlement tells of: due times that are left out, and what ended unseen."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import OuterRef, Q, Subquery

from .. import clock
from ..job_outcomes import OUTCOMES
from ..models import JobRun, OutboxMessage, RunOutcome, Status
from ..workqueue import cancelled_from_the_start

BATCH = 500
LEFT_OUT = "left out: the run before it had not ended"
GONE = "its message is gone, and nobody has seen how it ended"


def left_out(now: datetime) -> dict[str, Any]:
    """The columns of a run that is stored only to tell that there was none."""
    return {
        **cancelled_from_the_start(now),
        "outcome": RunOutcome.CANCELLED,
        "ended_at": now,
        "last_error": LEFT_OUT,
    }


def catch_up(alias: str) -> int:
    """End the runs whose messages have ended, or are gone, without a word: settled by a worker of an older
    version, or deleted past all of us. A job whose runs must not overlap would wait for them for ever. How
    many there were."""
    runs = JobRun._base_manager.using(alias)
    message = OutboxMessage._base_manager.filter(pk=OuterRef("pk"))
    handed_over = runs.filter(outcome__isnull=True, status=Status.DONE)
    ended = handed_over.annotate(ends_as=Subquery(message.values("status")[:1])).filter(
        Q(ends_as__isnull=True) | Q(ends_as__in=list(OUTCOMES))
    )
    found = dict(ended.values_list("pk", "ends_as")[:BATCH])
    return sum(_end(alias, pk, status) for pk, status in found.items())


def _end(alias: str, pk: Any, status: int | None) -> int:
    row = JobRun._base_manager.using(alias).filter(pk=pk, outcome__isnull=True)
    if status is None:
        return row.update(
            outcome=RunOutcome.FAILED, last_error=GONE, ended_at=clock.now(), finished_at=clock.now()
        )
    message = OutboxMessage._base_manager.using(alias).filter(pk=pk).first()
    if message is None or message.status != status:
        return 0  # requeued just now
    return row.update(
        outcome=OUTCOMES[Status(status)],
        started_at=message.last_attempt_at,
        ended_at=message.finished_at or clock.now(),
        finished_at=clock.now(),
        attempts=message.attempts,
        result=message.result,
        last_error="" if status == Status.DONE else message.last_error,
    )
