"""The rows of jobs: stored, changed, switched on and off. Each change locks the row, as planning does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from .. import clock
from ..exceptions import UnknownJob
from ..hooks import on_commit
from ..models import Job
from ..wakeup import wake_schedulers

WHEN = ("cron", "timezone", "enabled")
"""What decides when it runs next."""


def store(alias: str, values: Mapping[str, Any]) -> Job:
    """Create it, or give it these columns. Inside a transaction."""
    job = locked(alias, values["name"])
    if job is None:
        try:
            with transaction.atomic(using=alias):
                job = Job(**values)
                _decide_next(job, alias)
                job.save(using=alias, force_insert=True)
        except IntegrityError:  # somebody has made it since we looked
            job = locked(alias, values["name"])
            assert job is not None
        else:
            on_commit(alias, wake_schedulers, alias)
            return job
    return change(job, values)


def change(job: Job, values: Mapping[str, Any]) -> Job:
    """Of a row that is locked. Its next run stays where it was unless what decides it has changed: a due time
    that is just being planned must not get lost."""
    alias = str(job._state.db)
    when = [getattr(job, column) for column in WHEN]
    for column, value in values.items():
        setattr(job, column, value)
    if when != [getattr(job, column) for column in WHEN]:
        _decide_next(job, alias)
        on_commit(alias, wake_schedulers, alias)
    job.save(using=alias, force_update=True)
    return job


def switch(alias: str, name: str, *, enabled: bool) -> Job:
    """Inside a transaction."""
    job = locked(alias, name)
    if job is None:
        raise unknown(name)
    return change(job, {"enabled": enabled})


def locked(alias: str, name: str) -> Job | None:
    rows: Any = Job._base_manager.using(alias).filter(pk=name)
    found: Job | None = rows.select_for_update().first()
    return found


def unknown(name: str) -> UnknownJob:
    return UnknownJob(f"There is no job {name!r}: create it, or is its name spelled otherwise?")


def _decide_next(job: Job, alias: str) -> None:
    """From now on: what is past is never run because a job was enabled, or got another schedule."""
    job.next_run_at = job.schedule.next_after(clock.read(alias)) if job.enabled else None
