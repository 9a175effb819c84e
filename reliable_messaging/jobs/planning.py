"""From jobs that are due to their runs. A job's row is locked meanwhile, so each due time is planned once,
by one of any number of schedulers; and of a job whose runs must not overlap, one run is let go at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from .. import clock, logs
from ..conf import get_settings
from ..failpoints import hit
from ..models import Job, JobRun, Overlap
from ..outgoing import handled_as
from ..workqueue.deadlock import retrying_deadlocks
from .due_times import DueTimes, due_times
from .queue import queue

BATCH = 50
"""Jobs in one transaction."""
LEFT_OUT = "left out: the run before it had not ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsSeen:
    """What a look at the jobs has shown."""

    next_in: timedelta | None
    """Until the next one is due; zero when one is."""
    holds: bool
    """Whether runs wait for others to end."""

    @property
    def is_due(self) -> bool:
        return self.next_in == timedelta(0)


def look(alias: str) -> JobsSeen:
    return JobsSeen(next_in=_next_in(alias), holds=_open(alias).filter(held=True).exists())


def plan_due(alias: str) -> int:
    """Make the runs of due jobs; how many jobs there were."""

    def work() -> int:
        with transaction.atomic(using=alias):
            due = _jobs(alias).filter(next_run_at__lte=clock.now()).order_by("next_run_at")
            jobs = list(due.select_for_update(skip_locked=True)[:BATCH])
            if jobs:
                _plan(alias, jobs, clock.read(alias))
            return len(jobs)

    return retrying_deadlocks(work)


def let_go(alias: str) -> int:
    """Of each job with runs that wait for others, the first one if no other is left; how many."""
    names = sorted(set(_open(alias).filter(held=True).values_list("job", flat=True)))
    return sum(retrying_deadlocks(lambda name=name: _let_go_of(alias, name)) for name in names)  # type: ignore[misc]


def _let_go_of(alias: str, name: str) -> int:
    with transaction.atomic(using=alias):
        job = _jobs(alias).filter(pk=name).select_for_update(skip_locked=True).first()
        if job is None and _jobs(alias).filter(pk=name).exists():
            return 0  # somebody has locked it, perhaps to do this very thing
        runs = _open(alias).filter(job=name)
        if job is not None and job.overlap == Overlap.ALLOW:  # it was not, before
            return int(runs.filter(held=True).update(held=False))
        if runs.filter(held=False).exists():
            return 0
        first = runs.filter(held=True).order_by("scheduled_for", "pk").values_list("pk", flat=True).first()
        return int(runs.filter(pk=first).update(held=False))


def run_of(job: Job, scheduled_for: datetime, **others: Any) -> JobRun:
    """One that is due then; not stored."""
    return JobRun(
        job=job.name,
        scheduled_for=scheduled_for,
        due_at=scheduled_for,
        **{
            "topic": job.topic,
            "payload": job.payload,
            "headers": job.headers,
            "priority": job.priority,
            "time_to_live": job.time_to_live or get_settings().MESSAGE_TTL,
            **handled_as(job.topic, queue=job.queue or None, max_attempts=job.max_attempts),
            **others,
        },
    )


def _plan(alias: str, jobs: list[Job], now: datetime) -> None:
    busy = _busy(alias, jobs)
    runs: list[JobRun] = []
    for job in jobs:
        times = _due_times(job, now)
        runs += _runs(job, times.runs, busy=job.name in busy)
        job.next_run_at = times.next
    stored = _rows(alias).bulk_create(_new(alias, runs), batch_size=BATCH)
    queue.using(alias).cancel(run.pk for run in stored if run.last_error == LEFT_OUT)
    hit("jobs-planned")
    _jobs(alias).bulk_update(jobs, ["next_run_at"])


def _due_times(job: Job, now: datetime) -> DueTimes:
    assert job.next_run_at is not None
    try:
        times = due_times(
            job.schedule,
            first=clock.as_utc(job.next_run_at),
            now=now,
            misfire=job.misfire,
            grace=job.misfire_grace,
        )
    except Exception as exc:  # somebody has written it past our checks; the others must not wait for it
        logs.event(logging.ERROR, "job unusable", job=job.name, error=str(exc))
        return DueTimes([], None, missed=False)
    if times.missed:
        logs.event(logging.WARNING, "job missed", job=job.name, since=job.next_run_at, misfire=job.misfire)
    return times


def _runs(job: Job, times: Iterable[datetime], *, busy: bool) -> Iterator[JobRun]:
    for at in times:
        left_out = busy and job.overlap == Overlap.SKIP
        held = busy and job.overlap != Overlap.ALLOW
        yield run_of(job, at, slot=at, held=held, last_error=LEFT_OUT if left_out else "")
        busy = True


def _next_in(alias: str) -> timedelta | None:
    planned = _jobs(alias).filter(next_run_at__isnull=False).order_by("next_run_at")
    found = planned.values_list("next_run_at", clock.now()).first()
    if found is None:
        return None
    at, now = map(clock.as_utc, found)
    return max(timedelta(0), at - now)


def _busy(alias: str, jobs: Iterable[Job]) -> set[str]:
    """The names of those with a run that has not ended, if that matters."""
    exclusive = [job.name for job in jobs if job.overlap != Overlap.ALLOW]
    return set(_open(alias).filter(job__in=exclusive).values_list("job", flat=True)) if exclusive else set()


def _new(alias: str, runs: list[JobRun]) -> list[JobRun]:
    """Those whose due time has no run yet: the database's clock may have been set back, and a job made again
    since."""
    planned = _rows(alias).filter(
        job__in={run.job for run in runs}, slot__in={run.slot for run in runs if run.slot is not None}
    )
    there = {(job, clock.as_utc(slot)) for job, slot in planned.values_list("job", "slot")}
    return [run for run in runs if (run.job, run.slot) not in there]


def _jobs(alias: str) -> Any:
    return Job._base_manager.using(alias)


def _rows(alias: str) -> Any:
    return JobRun._base_manager.using(alias)


def _open(alias: str) -> Any:
    return _rows(alias).filter(outcome__isnull=True)
