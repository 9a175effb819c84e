"""Reaping, expiring and purging, in every worker: no leader, and no recovery that waits for one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import Error, connections

from .. import clock, logs
from ..conf import get_settings
from ..models import Worker
from ..workqueue import Horizon, WorkQueue
from .respite import Respite

STALE_WORKER = timedelta(days=1)
SHORTEST_REST, LONGEST_REST = 1.0, 60.0
"""Of a step that failed."""


@dataclass(slots=True, kw_only=True)
class Maintenance:
    """One bounded step at a time, between two claims: a large purge must not hold up the work."""

    queue: WorkQueue[Any]
    _purge_at: float = field(default_factory=clock.monotonic)
    _purge_from: UUID | None = None
    _rests: dict[str, Respite] = field(default_factory=dict)
    """Of each step."""

    def run(self, seen: Horizon) -> bool:
        """Do what the look showed to be overdue; True when there may be more to do at once."""
        reaped = seen.lease_ended and self._step("reap", self._reap)
        expired = seen.expiry_passed and self._step("expire", self._expire)
        return reaped or expired or self._step("purge", self._purge)

    def _step(self, name: str, step: Callable[[], bool]) -> bool:
        """One that fails (a foreign key on the messages, no right to delete) must not keep the worker
        from its work."""
        rest = self._rests.setdefault(name, Respite(first=SHORTEST_REST, longest=LONGEST_REST))
        if rest.is_on:
            return False
        try:
            more = step()
        except Error as exc:
            if connections[self.queue.alias].connection is None:
                raise  # it is not the step: the database is away
            logs.event(logging.ERROR, "maintenance failed", step=name, error=str(exc), retry_in=rest.begin())
            return False
        rest.end()
        return more

    def _reap(self) -> bool:
        reaped = self.queue.reap()
        if reaped:
            logs.event(logging.WARNING, "leases ended", count=reaped, database=self.queue.alias)
        return bool(reaped)

    def _expire(self) -> bool:
        return bool(self.queue.expire())

    def _purge(self) -> bool:
        if clock.monotonic() < self._purge_at:
            return False
        purged, self._purge_from = self.queue.purge_batch(self._purge_from)
        if purged:
            logs.event(logging.INFO, "messages purged", count=purged, database=self.queue.alias)
        if self._purge_from is not None:
            return True
        self._purge_at = clock.monotonic() + get_settings().CLEANUP_INTERVAL.total_seconds()
        stale = clock.now() - STALE_WORKER
        Worker._base_manager.using(self.queue.alias).filter(heartbeat_at__lt=stale).delete()
        return False
