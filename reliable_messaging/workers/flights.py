"""What this process has claimed and not yet settled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from .. import clock
from ..message import Message
from ..workqueue import Settlement


@dataclass(slots=True)
class Flight:
    message: Message
    leased_at: float
    """When its lease was last known to begin, on the monotonic clock, a little too early."""
    unfenced: bool = False
    """A non-atomic handler is running: nothing but this process can stop its effects."""
    lost: bool = False


class Flights:
    """Shared by the claiming thread, the handler threads and the renewal thread."""

    def __init__(self, *, wake: Callable[[], None], stopping: Callable[[], bool]) -> None:
        self._lock = threading.Lock()
        self._flights: dict[UUID, Flight] = {}
        self._landed: list[Settlement] = []
        self._active = 0
        self.landings = 0
        """Counts up: what was seen before the last of them may be out of date."""
        self._wake_at = 0
        self._wake = wake
        self._stopping = stopping

    def take_off(self, messages: Iterable[Message], *, leased_at: float) -> None:
        with self._lock:
            for message in messages:
                self._flights[message.id] = Flight(message, leased_at)
                self._active += 1

    def boarding(self, message: Message, *, unfenced: bool) -> Message | None:
        """The message, as its handler gets it; None when it must not start any more."""
        flight = self._flights.get(message.id)
        if flight is None or flight.lost:
            return None
        flight.unfenced = unfenced
        return replace(message, stop_requested=lambda: flight.lost or self._stopping())

    def land(self, messages: Sequence[Message], settlements: Sequence[Settlement]) -> None:
        """These have been run. What is not among the settlements is settled already, or lost."""
        waiting = {settlement.item.id for settlement in settlements}
        with self._lock:
            self._active -= len(messages)
            self.landings += 1
            for message in messages:
                flight = self._flights.get(message.id)
                if flight is not None:
                    flight.unfenced = False
                if message.id not in waiting:
                    self._flights.pop(message.id, None)
            first = bool(settlements) and not self._landed
            self._landed += settlements
            wake = first or self._active <= self._wake_at
        if wake:
            self._wake()

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
                self._flights.pop(settlement.item.id, None)

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
            waiting = {settlement.item.id for settlement in self._landed}
            return [f.message for pk, f in self._flights.items() if pk not in waiting and not f.lost]

    def renewed(self, messages: Iterable[Message], *, leased_at: float) -> None:
        with self._lock:
            for message in messages:
                if message.id in self._flights:
                    self._flights[message.id].leased_at = leased_at

    def lose(self, messages: Iterable[Message]) -> None:
        with self._lock:
            for message in messages:
                if message.id in self._flights:
                    self._flights[message.id].lost = True

    def overdue(self, lease: float) -> bool:
        """Whether a non-atomic handler runs on a lease that has ended without a renewal."""
        now = clock.monotonic()
        with self._lock:
            return any(f.unfenced and now > f.leased_at + lease for f in self._flights.values())
