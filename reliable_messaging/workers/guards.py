"""Why a worker process must end at once; the watchdog asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .. import clock
from .flights import Flights
from .heartbeat import Heartbeat
from .hung import give_back, give_up
from .runs import Runs

SHORTEST_SILENCE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    flights: Flights
    runs: Runs
    heartbeat: Heartbeat
    lease: float
    one_writer: bool
    """The database has a single write lock, in this process's file system: no wire that could go dead."""
    holds_write_lock: Callable[[], bool]
    turn_began: Callable[[], float | None]
    """When the claiming thread began the turn that it is in."""

    def reasons(self) -> tuple[Callable[[], str | None], ...]:
        return self.unfenced_handler, self.hung_writer, self.dead_wire

    def unfenced_handler(self) -> str | None:
        """Its lease has ended, so another worker runs the message by now. Atomic handlers need no guard:
        their own fenced ack undoes what they did. While this process holds the only write lock, the
        heartbeat cannot renew, but nobody else can claim either."""
        if self.flights.has_overdue(self.lease) and not self.holds_write_lock():
            return "No lease could be renewed in time while a handler was running"
        return None

    def hung_writer(self) -> str | None:
        """The message of a handler past its time is given up. With the only write lock in the handler's
        hands nobody could write that down: then the process must go. What hangs in an on_commit hook
        has landed, and holds no lock any more."""
        for run in self.runs.newly_hung():
            if self.one_writer and run.holds_transaction and self.flights.in_the_air(run.message):
                return "A handler is past its time and holds the write lock"
            give_up(run, self.flights)
        for run in self.runs.newly_stranded():
            give_back(run, self.flights)
        return None

    def dead_wire(self) -> str | None:
        """Neither answer nor error: such a call never returns. The heartbeat waits for no lock longer
        than a part of the lease; the claiming thread may have to wait for several."""
        if self.one_writer:
            return None
        if self.heartbeat.silent_for > self.lease:
            return "The database did not answer the heartbeat for a whole lease"
        began = self.turn_began()
        if began is not None and clock.monotonic() - began > max(3 * self.lease, SHORTEST_SILENCE):
            return "The database did not answer for three leases"
        return None
