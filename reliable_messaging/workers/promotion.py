"""One kind of item that becomes a message when it is due, as a scheduler looks after it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import Error, connections

from .. import logs, promote
from ..db_errors import is_passing
from ..workqueue import Horizon, Lane, QueueSelection, WorkQueue
from .connections import is_gone
from .maintenance import Maintenance

EVERY_QUEUE = QueueSelection()


@dataclass(slots=True, kw_only=True)
class Promotion:
    queue: WorkQueue[Any]
    what: str
    """In log lines."""
    batch_size: int
    fired: int = 0
    _maintenance: Maintenance = field(init=False)
    _gave_up: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._maintenance = Maintenance(queue=self.queue)

    def look(self, *, within: timedelta) -> Horizon:
        return self.queue.look(self.queue.discover_queues(EVERY_QUEUE), EVERY_QUEUE, within=within)

    def fire(self, seen: Horizon) -> bool:
        """Whether anything has changed."""
        lanes = [*seen.lanes, *([None] if seen.suspect_due else [])]
        fired = sum(self._fire_lane(lane) for lane in lanes)
        if fired:
            logs.event(logging.INFO, f"{self.what} fired", count=fired, database=self.queue.alias)
        self.fired += fired
        gave_up, self._gave_up = self._gave_up, False
        return bool(fired) or gave_up

    def maintain(self, seen: Horizon) -> bool:
        """Whether there may be more to do at once."""
        return self._maintenance.run(seen)

    def _fire_lane(self, lane: Lane | None) -> int:
        """One that cannot become a message must not hold up all others for ever: they are tried one by one
        then, and that one goes dead."""
        using = self.queue.alias
        try:
            return promote.promote_due(self.queue, lane, limit=self.batch_size)
        except Error as exc:
            if is_passing(exc) or is_gone(connections[using]):
                raise
            logs.event(logging.ERROR, f"{self.what} not fired", database=using, error=str(exc))
        try:
            return promote.promote_due(self.queue, lane, limit=1)
        except Error as exc:
            if is_passing(exc) or is_gone(connections[using]):
                raise
            promote.give_up(self.queue, lane, exc)
            self._gave_up = True
            return 0
