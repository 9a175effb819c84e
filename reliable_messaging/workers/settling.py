"""Settling what has landed, so that nothing that cannot be settled holds up the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db import InterfaceError, OperationalError, connections

from .. import clock
from ..logs import logger
from ..message import Message
from ..report import ErrorReport
from ..workqueue import Fail, Release, Settlement, WorkQueue
from .flights import Flights
from .lost import report_lost

FLUSH_SECONDS = 0.02
"""Acknowledgements wait this long at most for the next claim's transaction."""
AWAY = (OperationalError, InterfaceError)
"""The database is not to be had, or somebody is in the way: the same settlement may work later."""


@dataclass(slots=True, kw_only=True)
class Settling:
    queue: WorkQueue[Message]
    flights: Flights
    released: int = 0
    """How many messages went back unrun."""
    _flush_at: float | None = field(default=None, init=False)

    def is_due(self) -> bool:
        """Whether what has landed should wait no longer for a claim to travel with."""
        if not self.flights.landed():
            return False
        if self._flush_at is None:
            self._flush_at = clock.monotonic() + FLUSH_SECONDS
        return clock.monotonic() >= self._flush_at or not self.flights.active

    def flush_by(self) -> float:
        """When that will be."""
        if self._flush_at is not None:
            return self._flush_at
        return clock.monotonic() + FLUSH_SECONDS if self.flights.landed() else math.inf

    def begin(self) -> list[Settlement]:
        """All that is to be settled now, in whichever transaction."""
        self._flush_at = None
        return self.flights.landed()

    def flush(self) -> None:
        """Settle everything that has landed: at once, or one by one when that fails."""
        settlements = self.begin()
        try:
            lost = self.queue.settle(settlements)
        except Exception:
            self.one_by_one()
        else:
            self.done(settlements, lost)

    def one_by_one(self) -> int:
        """One that cannot be written must not keep its neighbours claimed. But with the connection gone
        each would try a new one, which may take seconds, or hit a server that is just coming back.

        Returns how many could not be written; raises when one of them may be later."""
        away: Exception | None = None
        refused = 0
        for settlement in self.flights.landed():
            try:
                refused += self._settle_alone(settlement)
            except AWAY as exc:
                away = exc
                if connections[self.queue.alias].connection is None:
                    break
        if away is not None:
            raise away
        return refused

    def done(self, settlements: Sequence[Settlement], lost: Sequence[Message]) -> None:
        self.flights.settled(settlements)
        self.released += sum(isinstance(settlement, Release) for settlement in settlements)
        report_lost(lost)

    def _settle_alone(self, settlement: Settlement) -> bool:
        """Whether it could not be written."""
        refused = False
        try:
            lost = self.queue.settle([settlement])
        except AWAY:
            raise
        except Exception as exc:
            refused = True
            logger.exception("A message could not be settled; it goes dead, to be looked at.")
            lost = self.queue.settle([Fail(item=settlement.item, error=ErrorReport.from_exception(exc))])
        self.done([settlement], lost)
        return refused
