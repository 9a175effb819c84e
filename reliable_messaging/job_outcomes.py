"""How a run of a job ended: stored in the transaction in which its message ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from . import clock
from .hooks import on_commit
from .models import JobRun, OutboxMessage, RunOutcome, Status
from .wakeup import wake_schedulers
from .workqueue import Transition

OUTCOMES = {
    Status.DONE: RunOutcome.SUCCEEDED,
    Status.DEAD: RunOutcome.FAILED,
    Status.EXPIRED: RunOutcome.EXPIRED,
    Status.CANCELLED: RunOutcome.CANCELLED,
}
OPEN: dict[str, Any] = {
    "outcome": None,
    "started_at": None,
    "ended_at": None,
    "duration": None,
    "result": None,
}


def store_outcomes(using: str, transitions: Sequence[Transition]) -> None:
    """Of the runs whose messages these are, or of runs that never became any. What is ready again (requeued,
    for one) is open again."""
    ended = False
    for transition in transitions:
        if transition.status in OUTCOMES:
            _update(using, transition, _ended(using, transition))
            ended = True
        elif transition.status == Status.READY and transition.error is None:
            _update(using, transition, OPEN)
    if ended:  # a run of the same job may wait for it
        on_commit(using, wake_schedulers, using)


def _ended(using: str, transition: Transition) -> dict[str, Any]:
    item = transition.item
    return {
        "outcome": OUTCOMES[transition.status],
        "ended_at": clock.now(),
        "finished_at": clock.now(),  # it is kept from its end on, and not from when it was handed over
        "started_at": _started_at(using, transition),
        "duration": timedelta(seconds=transition.duration) if transition.duration else None,
        "held": False,
        "attempts": item.attempts,
        "result": transition.result,
        "last_error": "" if transition.status == Status.DONE else str(transition.error or item.last_error),
    }


def _started_at(using: str, transition: Transition) -> Any:
    if transition.status in (Status.EXPIRED, Status.CANCELLED):
        return None  # if there were attempts before, none of them ended it
    if transition.item.claimed_at is not None:
        return transition.item.claimed_at
    # Whoever finds that a lease has ended reads no times.
    rows = OutboxMessage._base_manager.using(using).filter(pk=transition.item.id)
    return rows.values_list("last_attempt_at", flat=True).first()


def _update(using: str, transition: Transition, values: dict[str, Any]) -> None:
    JobRun._base_manager.using(using).filter(pk=transition.item.id).update(**values)
