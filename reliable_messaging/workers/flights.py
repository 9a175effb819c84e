"""What this process has claimed and not yet settled."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from .. import clock
from ..message import Message
from ..workqueue import Release, Settlement


@dataclass(slots=True)
class Flight:
    message: Message
    leased_at: float
    """When its lease was last known to begin, on the monotonic clock, a little too early."""
    unfenced: bool = False
    """A non-atomic handler is running: nothing but this process can stop its effects."""
    boarded: bool = False
    lost: bool = False
    landed: bool = False


class Flights:
    """Shared by the claiming thread, the handler threads and the renewal thread."""

    def __init__(
        self, *, wake: Callable[[], None], stopping: Callable[[], bool], lease: float = math.inf
    ) -> None:
        self._lock = threading.Lock()
        self._flights: dict[UUID, Flight] = {}
        self._landed: list[Settlement] = []
        self._active = 0
        self.landings = 0
        """Counts up: what was seen before the last of them may be out of date."""
        self._wake_at = 0
        self._wake = wake
        self._stopping = stopping
        self._lease = lease

    def take_off(self, messages: Sequence[Message], *, leased_at: float) -> None:
        with self._lock:
            for message in messages:
                before = self._flights.get(message.id)
                if before is None or before.landed:
                    self._active += 1
                self._flights[message.id] = Flight(message, leased_at)

    def boarding(self, message: Message, *, unfenced: bool) -> Message | None:
        """The message, as its handler gets it; None when it must not start any more."""
        with self._lock:
            flight = self._of(message)
            if flight is None or flight.lost or flight.landed:
                return None
            if unfenced and clock.monotonic() > flight.leased_at + self._lease:
                return None  # after a pause of this process: someone else may be running it
            flight.boarded = True
            flight.unfenced = unfenced
        return message.told_to_stop_by(lambda: flight.lost or self._stopping())

    def land(self, messages: Sequence[Message], settlements: Sequence[Settlement]) -> None:
        """These have been run. What is not among the settlements is settled already, or lost.

        Only the first landing of a message counts: its handler may come back after it was given up."""
        waiting = {id(settlement.item): settlement for settlement in settlements}
        with self._lock:
            self.landings += 1
            before, was_empty = self._active, not self._landed
            for message in messages:
                settlement = waiting.get(id(message))
                if self._arrives(message, settlement is not None) and settlement is not None:
                    self._landed.append(settlement)
            first = was_empty and bool(self._landed)
            # At the moment when there is room, and not at every landing after it: each is a system call.
            has_room = self._active <= self._wake_at < before
        if first or has_room:
            self._wake()

    def _arrives(self, message: Message, is_waiting: bool) -> bool:
        flight = self._of(message)
        if flight is None or flight.landed:
            return False
        self._active -= 1
        flight.unfenced = False
        flight.landed = True
        if not is_waiting:
            self._forget(flight)
        return True

    def turn_back_unstarted(self) -> None:
        """Give up the claims of what no handler has begun; of those that are lost there is none."""
        with self._lock:
            for flight in [f for f in self._flights.values() if not (f.boarded or f.landed)]:
                self._arrives(flight.message, is_waiting=not flight.lost)
                if not flight.lost:
                    self._landed.append(Release(item=flight.message))

    def landed(self) -> list[Settlement]:
        """What waits to be settled; it stays here, and is renewed, until ``settled`` says so."""
        with self._lock:
            return list(self._landed)

    def settled(self, settlements: Sequence[Settlement]) -> None:
        """Call with some of what ``landed`` returned, after the commit."""
        gone = {id(settlement) for settlement in settlements}
        with self._lock:
            self._landed = [s for s in self._landed if id(s) not in gone]
            for settlement in settlements:
                flight = self._of(settlement.item)
                if flight is not None:
                    self._forget(flight)

    def _forget(self, flight: Flight) -> None:
        """The message asks its flight whether to stop: parted, or they would keep each other alive until
        somebody searches for garbage, with all that is in the payload."""
        del self._flights[flight.message.id]
        del flight.message

    def _of(self, message: Message) -> Flight | None:
        """Its flight; None for one of an earlier claim, whose handler may still be running."""
        flight = self._flights.get(message.id)
        return flight if flight is not None and flight.message is message else None

    def in_the_air(self, message: Message) -> bool:
        """Claimed here, and not yet through."""
        with self._lock:
            flight = self._of(message)
            return flight is not None and not flight.landed

    def wake_when_at_most(self, active: int) -> None:
        self._wake_at = active

    @property
    def active(self) -> int:
        """Claimed and not yet run."""
        return self._active

    def __len__(self) -> int:
        return len(self._flights)

    def messages(self) -> list[Message]:
        with self._lock:
            return [flight.message for flight in self._flights.values() if not flight.lost]

    def unlanded(self) -> list[Message]:
        """Claimed, and neither settled nor waiting to be."""
        with self._lock:
            return [f.message for f in self._flights.values() if not f.landed and not f.lost]

    def renewed(self, messages: Iterable[Message], *, leased_at: float) -> None:
        """Those that are not lost: the handler of a lost one must not look as if it had a lease."""
        with self._lock:
            for flight in filter(None, map(self._of, messages)):
                if not flight.lost:
                    flight.leased_at = leased_at

    def lose(self, messages: Iterable[Message]) -> list[Message]:
        """Someone else has these claims now. Returns those that were still in the air: what has landed
        meanwhile was settled, or will be, and whoever settles says what was lost."""
        with self._lock:
            flights = [flight for flight in map(self._of, messages) if flight is not None]
            for flight in flights:
                flight.lost = True
            return [flight.message for flight in flights if not flight.landed]

    def has_overdue(self, lease: float) -> bool:
        """Whether a non-atomic handler runs on a lease that has ended without a renewal."""
        now = clock.monotonic()
        with self._lock:
            return any(f.unfenced and now > f.leased_at + lease for f in self._flights.values())
