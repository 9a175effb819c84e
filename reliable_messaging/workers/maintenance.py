"""Reaping, expiring and purging, in every worker: no leader, and no recovery that waits for one."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from .. import clock, logs
from ..conf import get_settings
from ..message import Message
from ..models import Worker
from ..workqueue import Horizon, WorkQueue

STALE_WORKER = timedelta(days=1)


@dataclass(slots=True, kw_only=True)
class Maintenance:
    """One bounded step at a time, between two claims: a large purge must not hold up the work."""

    queue: WorkQueue[Message]
    _purge_at: float = field(default_factory=clock.monotonic)
    _purge_from: UUID | None = None

    def run(self, seen: Horizon) -> bool:
        """Do what the look showed to be overdue; True when there may be more to do at once."""
        reaped = self.queue.reap() if seen.lease_ended else 0
        if reaped:
            logs.event(logging.WARNING, "leases ended", count=reaped, database=self.queue.alias)
        expired = self.queue.expire() if seen.expiry_passed else 0
        return bool(reaped or expired or self._purge_step())

    def _purge_step(self) -> bool:
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
