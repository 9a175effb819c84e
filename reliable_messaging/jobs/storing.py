"""The rows of jobs: stored, changed, switched on and off. Each change locks the row, as planning does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connections

from .. import clock
from ..exceptions import InvalidJob, UnknownJob
from ..hooks import on_commit
from ..models import Job
from ..wakeup import wake_schedulers

WHEN = ("cron", "timezone", "enabled")
"""What decides when it runs next."""


def store(alias: str, values: Mapping[str, Any]) -> Job:
    """Create it, or give it these columns. Inside a transaction."""
    job = locked(alias, values["name"])
    if job is None:
        new = Job(**values)
        _decide_next(new, alias)
        _insert(new, alias)
        on_commit(alias, wake_schedulers, alias)
        job = locked(alias, values["name"])
        assert job is not None
    return change(job, values)


def change(job: Job, values: Mapping[str, Any]) -> Job:
    """Of a row that is locked. Its next run stays where it was unless what decides it has changed: a due time
    that is just being planned must not get lost."""
    alias = str(job._state.db)
    when = [getattr(job, column) for column in WHEN]
    for column, value in values.items():
        setattr(job, column, value)
    if when != [getattr(job, column) for column in WHEN] or is_off_course(job):
        _decide_next(job, alias)
        on_commit(alias, wake_schedulers, alias)
    job.save(using=alias, force_update=True)
    return job


def is_off_course(job: Job) -> bool:
    """Enabled, and not to run when its schedule says so: it was decided by a clock that was wrong, or never.
    What is past is due, and on its course."""
    if not job.enabled:
        return False
    try:
        following = job.schedule.next_after(clock.read(str(job._state.db)))
    except InvalidJob:  # nobody can tell
        return False
    if following is None:
        return False
    return job.next_run_at is None or clock.as_utc(job.next_run_at) > following


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
    return UnknownJob(
        f"There is no job {name!r}. Is its name spelled otherwise? If the code declares it with @periodic, "
        "run manage.py sync_jobs first, or jobs.sync() in a test."
    )


def _insert(job: Job, alias: str) -> None:
    """Unless somebody has just made it: by a statement that takes no error to say so, which would break the
    caller's transaction, or on MariaDB leave a lock behind over which two such callers deadlock."""
    rows = Job._base_manager.using(alias)
    if connections[alias].features.supports_update_conflicts_with_target:
        rows.bulk_create([job], ignore_conflicts=True)
    else:
        rows.bulk_create([job], update_conflicts=True, update_fields=["topic"])


def _decide_next(job: Job, alias: str) -> None:
    """From now on: what is past is never run because a job was enabled, or got another schedule."""
    job.next_run_at = job.schedule.next_after(clock.read(alias)) if job.enabled else None
