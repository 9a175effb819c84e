"""Reaping, expiring and purging, in every worker: no leader, and no recovery that waits for one."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import timedelta

from .. import clock, logs
from ..conf import get_settings
from ..message import Message
from ..models import Worker
from ..workqueue import Horizon, WorkQueue

STALE_WORKER = timedelta(days=1)


@dataclass(slots=True, kw_only=True)
class Maintenance:
    queue: WorkQueue[Message]
    _purge_at: float = field(default_factory=clock.monotonic)

    def run(self, seen: Horizon) -> bool:
        """Do what the look showed to be overdue; True when rows came back to be claimed."""
        revived = 0
        if seen.lease_ended:
            revived = self.queue.reap()
            logs.event(logging.WARNING, "leases ended", count=revived, database=self.queue.alias)
        if seen.expiry_passed:
            self.queue.expire()
        if clock.monotonic() >= self._purge_at:
            self._purge_at = clock.monotonic() + get_settings().CLEANUP_INTERVAL.total_seconds()
            self._clean_up()
        return revived > 0

    def _clean_up(self) -> None:
        purged = self.queue.purge()
        stale = clock.now() - STALE_WORKER
        Worker._base_manager.using(self.queue.alias).filter(heartbeat_at__lt=stale).delete()
        if purged:
            logs.event(logging.INFO, "messages purged", count=purged, database=self.queue.alias)
