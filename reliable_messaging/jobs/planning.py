"""From jobs that are due to their runs. A job's row is locked meanwhile, so each due time is planned once,
by one of any number of schedulers; and of a job whose runs must not overlap, one run is let go at a time."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction

from .. import clock, logs
from ..conf import get_settings
from ..failpoints import hit
from ..models import Job, JobRun, Overlap
from ..outgoing import handled_as
from ..storing import by_size
from ..workqueue.deadlock import retrying_deadlocks
from .due_times import MOST, DueTimes, due_times
from .endings import left_out

BATCH = 50
"""Jobs in one transaction."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    jobs: int
    """How many there were."""
    unusable: dict[str, Exception] = field(default_factory=dict)
    """Those of which no runs could be made. They are left as they are: another scheduler may be able to."""


def look(alias: str, *, leave_out: Collection[str] = ()) -> JobsSeen:
    return JobsSeen(next_in=_next_in(alias, leave_out), holds=_held(alias).exists())


def due_names(alias: str, *, leave_out: Collection[str] = ()) -> list[str]:
    """The first of them."""
    return list(_due(alias, leave_out).values_list("pk", flat=True)[:BATCH])


def plan_due(alias: str, *, leave_out: Collection[str] = (), only: str | None = None) -> Planned:
    """Make the runs of due jobs, or of one of them."""
    due = _due(alias, leave_out) if only is None else _due(alias, leave_out).filter(pk=only)

    def work() -> Planned:
        with transaction.atomic(using=alias):
            jobs = list(due.select_for_update(skip_locked=True)[:BATCH])
            unusable = _plan(alias, jobs, clock.read(alias)) if jobs else {}
            return Planned(jobs=len(jobs) - len(unusable), unusable=unusable)

    return retrying_deadlocks(work)


def let_go(alias: str) -> int:
    """Of each job with runs that wait for others, the first one if no other is left; how many."""
    names = sorted(_held(alias).values_list("job", flat=True).distinct())
    return sum(retrying_deadlocks(partial(_let_go_of, alias, name)) for name in names)


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


def _plan(alias: str, jobs: list[Job], now: datetime) -> dict[str, Exception]:
    """Returns those that are unusable."""
    busy = _busy(alias, jobs)
    share = max(1, MOST // len(jobs))  # what one has missed must not hold up the others
    runs: list[JobRun] = []
    unusable: dict[str, Exception] = {}
    for job in jobs:
        try:
            times = _due_times(job, now, share)
            runs += _runs(job, times.runs, now, busy=job.name in busy)
            job.next_run_at = times.next
        except Exception as exc:  # somebody has written it past our checks, or its zone is not known here
            unusable[job.name] = exc
    for part in by_size(_new(alias, runs)):
        _rows(alias).bulk_create(part, batch_size=BATCH)
    hit("jobs-planned")
    _jobs(alias).bulk_update([job for job in jobs if job.name not in unusable], ["next_run_at"])
    return unusable


def _due_times(job: Job, now: datetime, most: int) -> DueTimes:
    assert job.next_run_at is not None
    first, grace = clock.as_utc(job.next_run_at), job.misfire_grace
    times = due_times(job.schedule, first=first, now=now, misfire=job.misfire, grace=grace, most=most)
    if times.missed:
        logs.event(logging.WARNING, "job missed", job=job.name, since=first, misfire=job.misfire)
    return times


def _runs(job: Job, times: Iterable[datetime], now: datetime, *, busy: bool) -> list[JobRun]:
    runs = []
    for at in times:
        if busy and job.overlap == Overlap.SKIP:
            runs.append(run_of(job, at, slot=at, **left_out(now)))
        else:
            runs.append(run_of(job, at, slot=at, held=busy and job.overlap == Overlap.QUEUE))
        busy = True
    return runs


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


def _next_in(alias: str, leave_out: Collection[str]) -> timedelta | None:
    planned = _jobs(alias).filter(next_run_at__isnull=False).exclude(pk__in=leave_out)
    found = planned.order_by("next_run_at").values_list("next_run_at", clock.now()).first()
    if found is None:
        return None
    at, now = map(clock.as_utc, found)
    return max(timedelta(0), at - now)


def _due(alias: str, leave_out: Collection[str]) -> Any:
    due = _jobs(alias).filter(next_run_at__lte=clock.now()).exclude(pk__in=leave_out)
    return due.order_by("next_run_at")


def _held(alias: str) -> Any:
    return _open(alias).filter(held=True)
