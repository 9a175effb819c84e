"""The scheduler's turn: what is due becomes a message, and then it sleeps until the next is."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import Error, connections

from .. import clock, logs, timers
from ..conf import get_settings
from ..db_errors import is_passing
from ..ids import uuid7
from ..session import SessionLimits
from ..waiter import Waiter
from ..wakeup import INTERVAL, TIMERS, can_wake
from ..workqueue import Horizon, Lane, QueueSelection
from .connections import is_gone
from .launch import TRY_AGAIN, end, end_soon
from .listener import Listener
from .maintenance import Maintenance
from .stop import StopFlag
from .watchdog import Watchdog

EVERY_QUEUE = QueueSelection()
LEAST_PAUSE = 0.02
"""Between two looks, whoever wakes it: many who schedule must not keep it looking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """How one scheduler works. What is not given comes from the settings."""

    database: str = "default"
    batch_size: int = timers.BATCH
    poll_max: timedelta = field(default_factory=lambda: get_settings().POLL_MAX)
    lease: timedelta = field(default_factory=lambda: get_settings().LEASE)
    """How soon a silent connection is given up."""
    wakeup: bool = field(default_factory=lambda: get_settings().WAKEUP)
    burst: bool = False


class Scheduler:
    """Any number of them, on any machines: rows that one of them has locked are skipped by the others. It
    holds nothing between two turns, so there is nothing to recover when it dies."""

    def __init__(self, options: SchedulerOptions) -> None:
        self.options = options
        self.id = uuid7()
        self.waiter = Waiter()
        self.stop_flag = StopFlag(self.waiter.wake)
        self.fired = 0
        self._queue = timers.queue.using(options.database)
        self._maintenance = Maintenance(queue=self._queue)
        self._nothing_due = False
        self._gave_up = False
        self._alert_until = 0.0
        """Until a look has begun that late, whatever is scheduled may have sent no wake-up."""
        self._turn_began: float | None = None
        # SQLite is a file: no wire could go dead, and a lock may be waited for.
        self._has_wire = connections[options.database].features.has_select_for_update
        self._listener = self._make_listener()
        self._watchdog = Watchdog(reasons=(self._dead_wire,), end_process=_end_process)

    @property
    def session_limits(self) -> SessionLimits:
        lease = self.options.lease
        return SessionLimits(lease=lease, idle_in_transaction=lease, lock=lease / 4, read=lease)

    @property
    def finished(self) -> bool:
        return self.stop_flag.requested or (self.options.burst and self._nothing_due)

    def start(self) -> None:
        if self._listener is not None:
            self._listener.start()
        self._watchdog.start()

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.stop()
        self._watchdog.stop()

    def turn(self) -> float:
        """Make the messages of what is due; return the seconds until there may be more."""
        self._turn_began = began = clock.monotonic()
        try:
            if self._listener is not None:
                self._listener.test_if_wanted(connections[self.options.database])
            seen = self._look()
            fired = self._fire(seen)
            more = self._maintenance.run(seen)
        finally:
            self._turn_began = None
        self._nothing_due = not (fired or more)
        if fired or more:
            return 0.0  # behind what was due there may be more, in the same lane
        return self._wait(seen, began)

    def _wait(self, seen: Horizon, began: float) -> float:
        wait = self.options.poll_max if seen.next_in is None else min(seen.next_in, self.options.poll_max)
        if seen.lanes:
            # Somebody has locked what is due, and it hides what comes after it.
            wait = min(wait, get_settings().POLL_MIN)
        if began < self._alert_until:
            # What was scheduled just after a wake-up may have sent none: it is looked for a moment later.
            wait = min(wait, timedelta(seconds=INTERVAL))
        return max(wait.total_seconds(), LEAST_PAUSE - (clock.monotonic() - began))

    def _look(self) -> Horizon:
        with self._queue.reading():
            queues = self._queue.discover_queues(EVERY_QUEUE)
            return self._queue.look(queues, EVERY_QUEUE, within=self.options.poll_max)

    def _fire(self, seen: Horizon) -> bool:
        """Whether anything has changed."""
        lanes = [*seen.lanes, *([None] if seen.suspect_due else [])]
        fired = sum(self._fire_lane(lane) for lane in lanes)
        if fired:
            logs.event(logging.INFO, "timers fired", count=fired, database=self.options.database)
        self.fired += fired
        gave_up, self._gave_up = self._gave_up, False
        return bool(fired) or gave_up

    def _fire_lane(self, lane: Lane | None) -> int:
        """One that cannot become a message must not hold up all others for ever: they are tried one by one
        then, and that one goes dead."""
        using = self.options.database
        try:
            return timers.fire_due(lane, limit=self.options.batch_size, using=using)
        except Error as exc:
            if is_passing(exc) or is_gone(connections[using]):
                raise
            logs.event(logging.ERROR, "timers not fired", database=using, error=str(exc))
        try:
            return timers.fire_due(lane, limit=1, using=using)
        except Error as exc:
            if is_passing(exc) or is_gone(connections[using]):
                raise
            timers.give_up(lane, exc, using=using)
            self._gave_up = True
            return 0

    def _hear(self) -> None:
        self._alert_until = clock.monotonic() + INTERVAL
        self.waiter.wake()

    def _make_listener(self) -> Listener | None:
        options = self.options
        if options.burst or not options.wakeup or not can_wake(connections[options.database]):
            return None
        return Listener(
            alias=get_settings().WAKEUP_DATABASE or options.database,
            limits=self.session_limits,
            name=str(self.id),
            on_heard=self._hear,
            wake=self.waiter.wake,
            channel=TIMERS,
        )

    def _dead_wire(self) -> str | None:
        """Neither answer nor error: such a call never returns."""
        began, lease = self._turn_began, self.options.lease.total_seconds()
        if self._has_wire and began is not None and clock.monotonic() - began > max(3 * lease, 10.0):
            return "The database did not answer the scheduler for three leases"
        return None


def _end_process(reason: str) -> None:
    end_soon(TRY_AGAIN)
    logs.logger.critical("%s: this process (%d) ends at once.", reason, os.getpid())
    end(TRY_AGAIN)
