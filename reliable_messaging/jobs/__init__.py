"""Jobs: what runs again and again, by a cron expression, and the history of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import transaction

from .. import clock, codec
from .. import outbox as _outbox
from ..alias import choose_alias, require_transaction
from ..conf import get_settings
from ..exceptions import InvalidJob
from ..hooks import on_commit
from ..models import Job, JobRun, Misfire, Overlap
from ..promote import promote_all_due
from ..wakeup import wake_schedulers
from ..workqueue.deadlock import retrying_in_transaction
from . import planning, storing
from .declared import Synced, periodic, sync
from .definition import JobDefinition, build_values
from .queue import queue

__all__ = [
    "Synced",
    "acreate_or_update",
    "atrigger",
    "cancel",
    "create_or_update",
    "delete",
    "disable",
    "enable",
    "fire_all_due",
    "next_times",
    "periodic",
    "queue",
    "sync",
    "trigger",
]

MOST_TIMES = 1000
_JOBS_OWN: Any = object()


def create_or_update(
    name: str,
    *,
    topic: str,
    cron: str,
    payload: Any = None,
    timezone: str = "UTC",
    enabled: bool = True,
    misfire: str = Misfire.ONCE,
    misfire_grace: float | timedelta = timedelta(minutes=1),
    overlap: str = Overlap.ALLOW,
    max_attempts: int | None = None,
    queue: str | None = None,
    priority: int = 0,
    expires_in: float | timedelta | None = None,
    headers: Mapping[str, Any] | None = None,
    using: str | None = None,
) -> Job:
    """A job that sends a message at each due time of its cron expression; returns the saved row.

    Five fields, or six with the seconds first. ``timezone`` is the zone of its times: what falls into the
    hour that is left out in spring runs right after it, and what falls into the one that comes twice in
    autumn runs once. ``misfire`` says what becomes of due times that are past by more than
    ``misfire_grace`` when a scheduler comes: ``skip`` them, run ``once`` for them all, or ``all`` of them.
    ``overlap`` says what becomes of one while the run before it has not ended: ``allow``, ``skip``,
    ``queue``.

    It lives and dies with your transaction. A job of that name gets all of these columns; its next run stays,
    unless its schedule is another now. What is past is never run because of a change.
    """
    definition = JobDefinition(
        name=name,
        topic=topic,
        cron=cron,
        payload=payload,
        timezone=timezone,
        enabled=enabled,
        misfire=misfire,
        misfire_grace=misfire_grace,
        overlap=overlap,
        max_attempts=max_attempts,
        queue=queue,
        priority=priority,
        expires_in=expires_in,
        headers=headers,
    )
    values, alias = build_values(definition), choose_alias(using)
    return retrying_in_transaction(alias, lambda: storing.store(alias, values))


def delete(name: str, *, using: str | None = None) -> bool:
    """The job, and its runs that have not started: they are cancelled. The history of its runs stays. False:
    there was none."""
    alias = choose_alias(using)

    def work() -> bool:
        job = storing.locked(alias, name)
        if job is None:
            return False
        job.delete(using=alias)
        runs = JobRun._base_manager.using(alias).filter(job=name, outcome__isnull=True)
        _cancel(alias, list(runs.values_list("pk", flat=True)))
        return True

    return retrying_in_transaction(alias, work)


def trigger(name: str, *, payload: Any = _JOBS_OWN, using: str | None = None) -> JobRun:
    """A run as soon as can be, whether the job is enabled or not; its schedule goes on as if nothing had
    happened. It lives and dies with your transaction. If the job's runs must not overlap, it waits for the
    one that is there. ``payload`` replaces the job's."""
    alias = choose_alias(using)
    if get_settings().REQUIRE_ATOMIC:
        require_transaction(alias)
    given = {}
    if payload is not _JOBS_OWN:
        given["payload"] = codec.encode(payload, max_bytes=get_settings().MAX_PAYLOAD_BYTES)

    def work() -> JobRun:
        job = _get(name, alias)
        # Whether another one is there, a scheduler finds out, which locks the job for it.
        held = job.overlap != Overlap.ALLOW
        run = planning.run_of(job, clock.read(alias), held=held, **given)
        run.save(using=alias, force_insert=True)
        run.refresh_from_db(using=alias)
        on_commit(alias, wake_schedulers, alias)
        return run

    return retrying_in_transaction(alias, work)


def cancel(run: UUID | str, *, using: str | None = None) -> bool:
    """A run that has not started. False: it runs, has ended, or was never there."""
    alias = choose_alias(using)
    return retrying_in_transaction(alias, lambda: bool(_cancel(alias, [run])))


def enable(name: str, *, using: str | None = None) -> Job:
    """From its next due time on: what is past is not run."""
    return _switch(name, using, enabled=True)


def disable(name: str, *, using: str | None = None) -> Job:
    """No more runs, until it is enabled. Those that are there go on."""
    return _switch(name, using, enabled=False)


def next_times(name: str, count: int = 5, *, using: str | None = None) -> list[datetime]:
    """Its next due times, in its time zone; also of a job that is disabled."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_TIMES:
        raise InvalidJob(f"count must be a whole number from 1 to {MOST_TIMES:,}, not {count!r}.")
    alias = choose_alias(using)
    schedule = _get(name, alias).schedule
    times = schedule.times_after(clock.read(alias))
    return [at.astimezone(schedule.zone) for at in islice(times, count)]


async def acreate_or_update(name: str, **options: Any) -> Job:
    """``create_or_update`` for async code. It cannot join a caller's transaction: see ``aenqueue``."""
    return await sync_to_async(create_or_update)(name, **options)


async def atrigger(name: str, **options: Any) -> JobRun:
    """``trigger`` for async code. It cannot join a caller's transaction: see ``aenqueue``."""
    return await sync_to_async(trigger)(name, **options)


def fire_all_due(*, using: str | None = None) -> int:
    """What a scheduler does, here and now: for tests. How many messages there were."""
    alias = choose_alias(using)
    fired, unusable = 0, set[str]()
    while True:
        planned, let_go = planning.plan_due(alias, leave_out=unusable), planning.let_go(alias)
        more = promote_all_due(queue.using(alias))
        if not (planned.jobs or let_go or more):
            return fired
        fired += more
        unusable |= planned.unusable.keys()


def _cancel(alias: str, runs: list[Any]) -> int:
    """They have a message, or are to get one; it has the same id."""
    with transaction.atomic(using=alias, savepoint=False):
        waiting = queue.using(alias).cancel(runs)
        return len(waiting) + len(_outbox.queue.using(alias).cancel(runs))


def _switch(name: str, using: str | None, *, enabled: bool) -> Job:
    alias = choose_alias(using)
    return retrying_in_transaction(alias, lambda: storing.switch(alias, name, enabled=enabled))


def _get(name: str, alias: str) -> Job:
    job: Job | None = Job._base_manager.using(alias).filter(pk=name).first()
    if job is None:
        raise storing.unknown(name)
    return job
