"""Settling what has landed, so that nothing that cannot be settled holds up the rest."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from django.db import Error, connections

from .. import clock, logs
from ..db_errors import is_passing
from ..message import Message
from ..report import ErrorReport
from ..workqueue import Ack, Fail, Release, Settlement, WorkQueue
from .connections import is_gone
from .flights import Flights
from .lost import report_lost
from .respite import Respite

FLUSH_SECONDS = 0.02
"""Acknowledgements wait this long at most for the next claim's transaction."""
SHORTEST_REST, LONGEST_REST = 0.5, 5.0
"""Of a settlement that is set aside."""
LOCKED = "somebody has locked its row"


def _nothing(delay: timedelta) -> None:
    pass


@dataclass(slots=True, kw_only=True)
class Settling:
    queue: WorkQueue[Message]
    flights: Flights
    on_delay: Callable[[timedelta], None] = _nothing
    """Told how long it is until some of what was settled falls due again."""
    released: int = 0
    """How many messages went back, unrun or unfinished."""
    _flush_at: float | None = field(default=None, init=False)
    _aside: dict[UUID, Respite] = field(default_factory=dict, init=False)
    """Messages whose settlement has failed by itself. With the others it would fail for them all, and no
    claim would travel with them: it waits alone, and is tried alone."""

    def is_due(self) -> bool:
        """Whether what has landed should wait no longer for a claim to travel with."""
        if not self._waiting():
            return False
        if self._flush_at is None:
            self._flush_at = clock.monotonic() + FLUSH_SECONDS
        return clock.monotonic() >= self._flush_at or not self.flights.active

    def flush_by(self) -> float:
        """When that will be, or when something that was set aside is to be tried again."""
        flush_at = self._flush_at
        if flush_at is None:
            flush_at = clock.monotonic() + FLUSH_SECONDS if self._waiting() else math.inf
        return min([flush_at, *(rest.until for rest in self._aside.values())])

    def begin(self) -> list[Settlement]:
        """All that is to be settled now, in whichever transaction."""
        self._flush_at = None
        return self._waiting()

    def flush(self) -> None:
        """Settle everything that has landed: at once, or one by one when that fails."""
        settlements = self.begin()
        try:
            lost = self.queue.settle(settlements)
        except Exception as exc:
            self.one_by_one(exc)
        else:
            self.done(settlements, lost)

    def one_by_one(self, because: Exception) -> bool:
        """One that cannot be written must not keep its neighbours claimed. But with the connection gone
        each would try a new one, which may take seconds, or hit a server that is just coming back: then it
        raises.

        Returns whether all of them were settled: then it was something else that has failed."""
        settled = [self._settle_alone(settlement, because) for settlement in self.begin()]
        return all(settled)

    def try_again(self, *, now: bool = False) -> None:
        """What was set aside, and has rested; or ``now``, all of it."""
        if not self._aside:
            return
        for settlement in self.flights.landed():
            rest = self._aside.get(settlement.item.id)
            if rest is not None and (now or not rest.is_on):
                self._settle_alone(settlement)

    def done(self, settlements: Sequence[Settlement], lost: Sequence[Message]) -> None:
        self.flights.settled(settlements)
        for settlement in settlements:
            if isinstance(settlement, Ack):
                continue
            self.released += isinstance(settlement, Release)
            if not isinstance(settlement, Fail) and settlement.delay:
                self.on_delay(settlement.delay)
        report_lost(lost)

    def _waiting(self) -> list[Settlement]:
        landed = self.flights.landed()
        return [s for s in landed if s.item.id not in self._aside] if self._aside else landed

    def _settle_alone(self, settlement: Settlement, because: object = LOCKED) -> bool:
        """Whether that was possible. What cannot be written now is set aside; what never can goes dead."""
        try:
            lost = self.queue.settle_unless_locked(settlement)
        except Exception as exc:
            self._raise_if_away(exc)
            if is_passing(exc):
                self._set_aside(settlement, str(exc))
            else:
                self._end(settlement, exc)
            return False
        if lost is None:
            self._set_aside(settlement, str(because))
            return False
        self._done_alone(settlement, lost)
        return True

    def _end(self, settlement: Settlement, exc: Exception) -> None:
        """Kept claimed for ever, it would be a message that nobody ever hears of again."""
        try:
            lost = self.queue.settle([Fail(item=settlement.item, error=ErrorReport.from_exception(exc))])
        except Exception as another:
            self._raise_if_away(another)
            self._set_aside(settlement, str(another))
            return
        logs.logger.error("A message could not be settled; it is dead, to be looked at.", exc_info=exc)
        self._done_alone(settlement, lost)

    def _raise_if_away(self, exc: Exception) -> None:
        if isinstance(exc, Error) and is_gone(connections[self.queue.alias]):
            raise exc

    def _set_aside(self, settlement: Settlement, error: str) -> None:
        item = settlement.item
        rest = self._aside.setdefault(item.id, Respite(first=SHORTEST_REST, longest=LONGEST_REST))
        logs.event(
            logging.WARNING,
            "settlement put off",
            id=item.id,
            topic=item.topic,
            error=error,
            retry_in=rest.begin(),
        )

    def _done_alone(self, settlement: Settlement, lost: Sequence[Message]) -> None:
        self._aside.pop(settlement.item.id, None)
        self.done([settlement], lost)
