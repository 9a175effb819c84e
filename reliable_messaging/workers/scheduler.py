"""The scheduler's turn: what is due becomes a message, and then it sleeps until the next is."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import Error, connections

from .. import clock, jobs, logs, promote, timers
from ..conf import get_settings
from ..ids import uuid7
from ..jobs.planning import JobsSeen
from ..session import SessionLimits
from ..waiter import Waiter
from ..wakeup import INTERVAL, TIMERS, can_wake
from ..workqueue import Horizon
from .connections import is_gone
from .launch import TRY_AGAIN, end, end_soon
from .listener import Listener
from .maintenance import LONGEST_REST, SHORTEST_REST
from .planner import Planner
from .promotion import Promotion
from .respite import Respite
from .stop import StopFlag
from .watchdog import Watchdog

HELD_POLL = timedelta(seconds=1)
"""While runs wait for others to end. On PostgreSQL that wakes a scheduler."""
LEAST_PAUSE = 0.02
"""Between two looks, whoever wakes it: many who schedule must not keep it looking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """How one scheduler works. What is not given comes from the settings."""

    database: str = "default"
    batch_size: int = promote.BATCH
    poll_max: timedelta = field(default_factory=lambda: get_settings().POLL_MAX)
    lease: timedelta = field(default_factory=lambda: get_settings().LEASE)
    """How soon a silent connection is given up."""
    wakeup: bool = field(default_factory=lambda: get_settings().WAKEUP)
    burst: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """What one look has shown."""

    seen: list[Horizon]
    jobs: JobsSeen

    @property
    def is_due(self) -> bool:
        return self.jobs.is_due or any(seen.lanes for seen in self.seen)

    @property
    def waits(self) -> list[timedelta]:
        """Until what is not due yet."""
        nexts = [self.jobs.next_in, *(seen.next_in for seen in self.seen)]
        return [wait for wait in nexts if wait]


class Scheduler:
    """Any number of them, on any machines: rows that one of them has locked are skipped by the others. It
    holds nothing between two turns, so there is nothing to recover when it dies."""

    def __init__(self, options: SchedulerOptions) -> None:
        self.options = options
        self.id = uuid7()
        self.waiter = Waiter()
        self.stop_flag = StopFlag(self.waiter.wake)
        self._promotions = [
            Promotion(queue=queue.using(options.database), what=what, batch_size=options.batch_size)
            for queue, what in ((timers.queue, "timers"), (jobs.queue, "runs"))
        ]
        self._planner = Planner(alias=options.database)
        self._synced = False
        self._sync_rest = Respite(first=SHORTEST_REST, longest=LONGEST_REST)
        self._nothing_due = False
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
    def fired(self) -> int:
        """How many messages it has made."""
        return sum(promotion.fired for promotion in self._promotions)

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
            self._sync_once()
            view = self._look()
            worked = self._work(view)
        finally:
            self._turn_began = None
        self._nothing_due = not worked
        if worked:
            return 0.0  # behind what was due there may be more, in the same lane
        return self._wait(view, began)

    def _sync_once(self) -> None:
        """In a turn, so that it is tried again when the database is away. Somebody who keeps a job locked
        keeps nothing else from being done."""
        if self._synced or self._sync_rest.is_on:
            return
        try:
            synced = jobs.sync(using=self.options.database)
        except Error as exc:
            rest = self._sync_rest.begin()
            if is_gone(connections[self.options.database]):
                raise
            logs.event(logging.ERROR, "jobs not synced", error=str(exc), retry_in=rest)
            return
        self._synced = True
        for name, columns in synced.kept.items():
            logs.event(logging.WARNING, "job kept as it is", job=name, changed_by_hand=",".join(columns))
        if synced.created or synced.updated:
            logs.event(logging.INFO, "jobs synced", created=len(synced.created), updated=len(synced.updated))

    def _look(self) -> _View:
        with timers.queue.using(self.options.database).reading():
            seen = [promotion.look(within=self.options.poll_max) for promotion in self._promotions]
            return _View(seen=seen, jobs=self._planner.look())

    def _work(self, view: _View) -> bool:
        """Whether anything has changed, or may change at once."""
        pairs = list(zip(self._promotions, view.seen, strict=True))
        fired = [promotion.fire(seen) for promotion, seen in pairs]
        planned = self._planner.plan(view.jobs)  # after them: what is wrong with a job must not keep them
        more = [promotion.maintain(seen) for promotion, seen in pairs]
        return planned or any(fired) or any(more)

    def _wait(self, view: _View, began: float) -> float:
        wait = min([self.options.poll_max, *view.waits])
        if view.is_due:
            # Somebody has locked what is due, and it hides what comes after it.
            wait = min(wait, get_settings().POLL_MIN)
        if view.jobs.holds:
            wait = min(wait, HELD_POLL)
        if began < self._alert_until:
            # What was scheduled just after a wake-up may have sent none: it is looked for a moment later.
            wait = min(wait, timedelta(seconds=INTERVAL))
        return max(wait.total_seconds(), LEAST_PAUSE - (clock.monotonic() - began))

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
