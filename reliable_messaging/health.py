"""Health of the outbox, for django-health-check 4.8 and later (extra: ``health``).

List it in a HealthCheckView::

    HealthCheckView.as_view(checks=[("reliable_messaging.health.OutboxHealth", {"max_dead": 10})])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import timedelta

from django.db import DatabaseError, InterfaceError, connections
from django.utils.connection import ConnectionDoesNotExist
from health_check.base import HealthCheck
from health_check.exceptions import HealthCheckException, ServiceUnavailable

from . import clock, outbox
from .models import Failure, OutboxMessage, Status, Worker


class OutboxUnhealthy(HealthCheckException):  # type: ignore[misc]  # django-health-check has no types
    """Nothing is broken, but something is not as it should be."""

    message_type = "Outbox"


@dataclasses.dataclass
class OutboxHealth(HealthCheck):  # type: ignore[misc]  # django-health-check has no types
    """The database answers and has the tables, workers are alive, nothing waits too long, and
    not too many messages are dead. ``None`` switches a threshold off."""

    alias: str = "default"
    min_workers: int | None = 1
    worker_timeout: timedelta = timedelta(seconds=60)
    """A worker whose last heartbeat is older than this does not count as alive."""
    max_age: timedelta | None = timedelta(minutes=5)
    """How long the oldest due message may have been waiting."""
    max_dead: int | None = 100

    def __repr__(self) -> str:
        # The key of its line in the JSON answer, which monitoring rules name: not to change with thresholds.
        return f"OutboxHealth(alias={self.alias!r})"

    def run(self) -> None:
        try:
            connection = connections[self.alias]
        except ConnectionDoesNotExist:
            raise ServiceUnavailable(f"There is no database {self.alias!r} in DATABASES") from None
        try:
            # Closed again: checks run on threads of their own, whose connections nobody else closes.
            with connection.temporary_connection():
                problems = list(self._problems())
        except (DatabaseError, InterfaceError) as exc:
            # Its text may tell hosts and users; the log has it.
            raise ServiceUnavailable(f"The database {self.alias!r} failed: {type(exc).__name__}") from exc
        if problems:
            raise OutboxUnhealthy("; ".join(problems))

    def _problems(self) -> Iterator[str]:
        tables = set(connections[self.alias].introspection.table_names())
        missing = {model._meta.db_table for model in (OutboxMessage, Failure, Worker)} - tables
        if missing:
            yield f"tables are missing ({', '.join(sorted(missing))}): run manage.py migrate"
            return
        yield from self._workers()
        yield from self._backlog()
        yield from self._dead_letters()

    def _workers(self) -> Iterator[str]:
        if self.min_workers is None:
            return
        since = clock.now() - self.worker_timeout
        alive = Worker._base_manager.using(self.alias).filter(heartbeat_at__gte=since).count()
        if alive < self.min_workers:
            yield f"{alive} workers alive, {self.min_workers} wanted"

    def _backlog(self) -> Iterator[str]:
        if self.max_age is None:
            return
        queue = outbox.queue.using(self.alias)
        oldest = queue.look(queue.discover_queues()).oldest
        if oldest is not None and oldest > self.max_age:
            yield (
                f"the oldest due message waits for {oldest.total_seconds():.0f} s, "
                f"more than {self.max_age.total_seconds():.0f} s"
            )

    def _dead_letters(self) -> Iterator[str]:
        if self.max_dead is None:
            return
        dead = OutboxMessage._base_manager.using(self.alias).filter(status=Status.DEAD)
        # Counts no further than it must: there may be a million of them.
        if dead[: self.max_dead + 1].count() > self.max_dead:
            yield f"more than {self.max_dead} dead messages"
