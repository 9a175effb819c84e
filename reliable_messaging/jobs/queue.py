"""The work queue of runs."""

from __future__ import annotations

from collections.abc import Sequence

from ..conf import get_settings
from ..hooks import on_commit
from ..job_outcomes import store_outcomes
from ..message import DueRun
from ..models import JobRun, Status
from ..wakeup import wake_schedulers
from ..workqueue import Transition, WorkQueue


def _observe(using: str, transitions: Sequence[Transition]) -> None:
    store_outcomes(using, transitions)
    if any(transition.status == Status.READY for transition in transitions):
        on_commit(using, wake_schedulers, using)


def _always(run: DueRun) -> bool:  # noqa: ARG001
    return True


queue: WorkQueue[DueRun] = WorkQueue(
    JobRun,
    retention=lambda: get_settings().RUN_RETENTION,
    observer=_observe,
    tells_within=_always,
)
"""The verbs, for people who write their own processors: claim, ack, abandon, fail, release, …"""
