"""Health of the outbox, of timers and of jobs, for django-health-check 4.8 and later (extra: ``health``).

List what you use in a HealthCheckView::

    HealthCheckView.as_view(checks=[("reliable_messaging.health.OutboxHealth", {"max_dead": 10})])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar

from django.db import DatabaseError, InterfaceError, connections
from django.db.models import Model, QuerySet
from django.utils.connection import ConnectionDoesNotExist
from health_check.base import HealthCheck
from health_check.exceptions import HealthCheckException, ServiceUnavailable

from . import clock, jobs, outbox, timers
from .models import Failure, Job, JobRun, OutboxMessage, Status, Timer, Worker
from .workqueue import WorkQueue

MOST_NAMES = 5
"""In one sentence."""


class OutboxUnhealthy(HealthCheckException):  # type: ignore[misc]  # django-health-check has no types
    """Nothing is broken, but something is not as it should be."""

    message_type = "Outbox"


class TimersUnhealthy(HealthCheckException):  # type: ignore[misc]  # django-health-check has no types
    """Nothing is broken, but something is not as it should be."""

    message_type = "Timers"


class JobsUnhealthy(HealthCheckException):  # type: ignore[misc]  # django-health-check has no types
    """Nothing is broken, but something is not as it should be."""

    message_type = "Jobs"


class _DatabaseCheck(HealthCheck):  # type: ignore[misc]  # django-health-check has no types
    """Finds problems by queries to one database."""

    alias: str
    needed: ClassVar[tuple[type[Model], ...]]
    unhealthy: ClassVar[type[HealthCheckException]]

    def run(self) -> None:
        try:
            connection = connections[self.alias]
        except ConnectionDoesNotExist:
            raise ServiceUnavailable(f"There is no database {self.alias!r} in DATABASES") from None
        try:
            # Closed again: checks run on threads of their own, whose connections nobody else closes.
            with connection.temporary_connection():
                problems = list(self._missing_tables()) or list(self.problems())
        except (DatabaseError, InterfaceError) as exc:
            # Its text may tell hosts and users; the log has it.
            raise ServiceUnavailable(f"The database {self.alias!r} failed: {type(exc).__name__}") from exc
        if problems:
            raise self.unhealthy("; ".join(problems))

    def problems(self) -> Iterator[str]:
        raise NotImplementedError

    def _missing_tables(self) -> Iterator[str]:
        tables = set(connections[self.alias].introspection.table_names())
        missing = {model._meta.db_table for model in self.needed} - tables
        if missing:
            yield f"tables are missing ({', '.join(sorted(missing))}): run manage.py migrate"


@dataclasses.dataclass
class OutboxHealth(_DatabaseCheck):
    """The database answers and has the tables, workers are alive, nothing waits too long, and
    not too many messages are dead. ``None`` switches a threshold off."""

    alias: str = "default"
    min_workers: int | None = 1
    worker_timeout: timedelta = timedelta(seconds=60)
    """A worker whose last heartbeat is older than this does not count as alive."""
    max_age: timedelta | None = timedelta(minutes=5)
    """How long the oldest due message may have been waiting."""
    max_dead: int | None = 100

    needed = (OutboxMessage, Failure, Worker)
    unhealthy = OutboxUnhealthy

    def __repr__(self) -> str:
        # The key of its line in the JSON answer, which monitoring rules name: not to change with thresholds.
        return f"OutboxHealth(alias={self.alias!r})"

    def problems(self) -> Iterator[str]:
        yield from self._workers()
        if self.max_age is not None:
            yield from _waiting(outbox.queue.using(self.alias), "message", self.max_age)
        yield from self._dead_letters()

    def _workers(self) -> Iterator[str]:
        if self.min_workers is None:
            return
        since = clock.now() - self.worker_timeout
        alive = Worker._base_manager.using(self.alias).filter(heartbeat_at__gte=since).count()
        if alive < self.min_workers:
            yield f"{alive} workers alive, {self.min_workers} wanted"

    def _dead_letters(self) -> Iterator[str]:
        if self.max_dead is None:
            return
        dead = OutboxMessage._base_manager.using(self.alias).filter(status=Status.DEAD)
        # Counts no further than it must: there may be a million of them.
        if dead[: self.max_dead + 1].count() > self.max_dead:
            yield f"more than {self.max_dead} dead messages"


@dataclasses.dataclass
class TimersHealth(_DatabaseCheck):
    """The database answers and has the table, and no due timer waits too long: is a scheduler running?"""

    alias: str = "default"
    max_age: timedelta = timedelta(minutes=1)
    """How long the oldest due timer may have been waiting."""

    needed = (Timer,)
    unhealthy = TimersUnhealthy

    def __repr__(self) -> str:
        return f"TimersHealth(alias={self.alias!r})"

    def problems(self) -> Iterator[str]:
        yield from _waiting(timers.queue.using(self.alias), "timer", self.max_age)


@dataclasses.dataclass
class JobsHealth(_DatabaseCheck):
    """The database answers and has the tables, no job is overdue and no due run waits too long (is a
    scheduler running?), and each enabled job has a next run."""

    alias: str = "default"
    max_late: timedelta = timedelta(minutes=1)
    """How long a due time may have been past without a run, and a due run without its message."""

    needed = (Job, JobRun)
    unhealthy = JobsUnhealthy

    def __repr__(self) -> str:
        return f"JobsHealth(alias={self.alias!r})"

    def problems(self) -> Iterator[str]:
        enabled = Job._base_manager.using(self.alias).filter(enabled=True)
        yield from self._overdue(enabled)
        yield from _waiting(jobs.queue.using(self.alias), "run", self.max_late)
        yield from self._without_next_run(enabled)

    def _overdue(self, enabled: QuerySet[Job]) -> Iterator[str]:
        overdue = enabled.filter(next_run_at__lt=clock.now() - self.max_late).order_by("next_run_at", "pk")
        first = overdue.values_list("pk", "next_run_at", clock.now()).first()
        if first is not None:
            name, due, now = first
            late = clock.as_utc(now) - clock.as_utc(due)
            said = _counted(overdue.count(), "job is", "jobs are")
            yield f"{said} overdue, the first one ({name}) by {late.total_seconds():.0f} s"

    def _without_next_run(self, enabled: QuerySet[Job]) -> Iterator[str]:
        """Their cron expression cannot be used, or never fires again."""
        names = list(enabled.filter(next_run_at=None).order_by("pk").values_list("pk", flat=True))
        if names:
            shown = [*names[:MOST_NAMES], *(["…"] if len(names) > MOST_NAMES else [])]
            said = _counted(len(names), "job is enabled but has", "jobs are enabled but have")
            yield f"{said} no next run ({', '.join(shown)})"


def _counted(count: int, one: str, more: str) -> str:
    return f"1 {one}" if count == 1 else f"{count} {more}"


def _waiting(queue: WorkQueue[Any], what: str, max_age: timedelta) -> Iterator[str]:
    oldest = queue.look(queue.discover_queues()).oldest
    if oldest is not None and oldest > max_age:
        yield (
            f"the oldest due {what} waits for {oldest.total_seconds():.0f} s, "
            f"more than {max_age.total_seconds():.0f} s"
        )
