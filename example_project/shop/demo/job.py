from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from reliable_messaging import jobs
from reliable_messaging.models import JobRun, OutboxMessage, RunOutcome

from .finding import Finding, compare
from .scene import Scene
from .schedulers import schedulers
from .waiting import wait_until

PROMISE = "A job runs once for each due time"
NAME, TOPIC = "stock-report", "stock.report"
SECOND = timedelta(seconds=1)
RUNS_BEFORE, RUNS_AFTER = 2, 3
"""The kill, at least."""


def job_runs_once_for_each_due_time(scene: Scene) -> Finding:
    """Two schedulers share the work, and one is killed: no due time is left out, none is taken twice."""
    with schedulers(scene, 2) as (victim, other):
        job = jobs.create_or_update(NAME, topic=TOPIC, cron="* * * * * *", misfire="all")
        scene.say(f"{NAME} is to run every second; schedulers {victim.pid} and {other.pid} share the work")
        wait_until("the first runs", lambda: _runs().count() >= RUNS_BEFORE)
        victim.kill()
        victim.wait()
        before = _runs().count()
        scene.say(f"scheduler {victim.pid} killed with SIGKILL after {before} runs")
        wait_until("runs without it", lambda: _runs().count() >= before + RUNS_AFTER)
        jobs.disable(NAME)
        # While a scheduler is there: a run may have been planned, and have no message yet.
        wait_until("every run ended", lambda: not _runs(outcome=None).exists())
        scene.say(f"scheduler {other.pid} alone made {_runs().count() - before} more; the job is disabled")
    assert job.next_run_at is not None  # it is enabled
    return _compare(first=job.next_run_at)


def _compare(*, first: datetime) -> Finding:
    times = list(_runs().order_by("scheduled_for").values_list("scheduled_for", flat=True))
    due = {first + number * SECOND for number in range((times[-1] - first) // SECOND + 1)}
    return compare(
        PROMISE,
        expected={
            "due times missed": 0,
            "runs": len(due),
            "messages": len(due),
            "attempts": len(due),
            "succeeded": len(due),
        },
        seen={
            "due times missed": len(due - set(times)),
            "runs": len(times),
            "messages": _messages().count(),
            "attempts": sum(_messages().values_list("attempts", flat=True)),
            "succeeded": _runs(outcome=RunOutcome.SUCCEEDED).count(),
        },
    )


def _runs(**conditions: Any) -> QuerySet[JobRun]:
    return JobRun.objects.filter(job=NAME, **conditions)


def _messages() -> QuerySet[OutboxMessage]:
    """Not those of the nightly job, which has the same topic."""
    others = JobRun.objects.exclude(job=NAME)
    return OutboxMessage.objects.filter(topic=TOPIC).exclude(pk__in=others.values("pk"))
