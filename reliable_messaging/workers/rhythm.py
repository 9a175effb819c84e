"""When a worker looks, and how long it waits in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .. import clock
from ..wakeup import INTERVAL
from .flights import Flights
from .lookout import Lookout
from .options import WorkerOptions
from .quarantine import Quarantine
from .runs import Runs
from .settling import Settling

LEAST_PAUSE = 0.02
"""Between a look and one that a wake-up asks for: many producers must not keep a worker looking."""
COSTS_BETWEEN = 1
"""And no less than the last one has cost: half of the time at most."""
HALF_A_SECOND = 0.5
"""Between two looks at what wakes nobody: a child that ended, a handler that does not."""


@dataclass(slots=True, kw_only=True)
class Rhythm:
    options: WorkerOptions
    lookout: Lookout
    flights: Flights
    settling: Settling
    quarantine: Quarantine
    runs: Runs
    takes_suspects: bool
    """This process runs them itself."""
    _woken: bool = field(default=False, init=False)
    _has_news: bool = field(default=False, init=False)
    """Woken, and not even a guess was made yet."""
    _wake_at: float = field(default=0.0, init=False)
    """When a wake-up may make it look, at the earliest."""
    _put_off: bool = field(default=False, init=False)
    _quarantine_seen_open: bool = field(default=False, init=False)
    _landings_seen: int = field(default=-1, init=False)

    def wake_up(self) -> None:
        """From any thread: something may be due now."""
        self._woken = self._has_news = True

    def may_guess(self) -> bool:
        """Whether to claim before looking: once, when woken while nothing was to do."""
        guess = self._has_news and not self.lookout.lanes and not self.flights.active
        self._has_news = False
        return guess

    def guessed_right(self) -> None:
        """The look is still to come, but not at once: it would keep the handler from starting, and the
        next one from being claimed. Nor ever later for the next right guess: there are other lanes."""
        if not self._put_off:
            self._put_off = True
            self._wake_at = clock.monotonic() + self.options.poll_min.total_seconds()

    def look_if_due(self) -> None:
        is_open = self.quarantine.is_open
        has_closed = self._quarantine_seen_open and not is_open  # it may have left something behind
        landed = self._stale and not len(self.flights)
        if clock.monotonic() >= self.lookout.due_at or has_closed or landed or self._must_look:
            self._landings_seen = self.flights.landings
            self._quarantine_seen_open = is_open
            self._look()
        if self.lookout.suspect_due and not self.takes_suspects and not self.runs.hung:
            self.quarantine.open()
            self._quarantine_seen_open = self.quarantine.is_open

    def _look(self) -> None:
        woken, self._woken = self._woken, False  # first: what comes during the look may be missed by it
        if woken:
            self.lookout.stay_alert(INTERVAL)
        self._put_off = False
        self._wake_at = clock.monotonic() + LEAST_PAUSE
        try:
            self.lookout.look()
        except Exception:
            self._woken = self._woken or woken  # nothing was seen: the next one comes as soon as it can
            raise
        self._wake_at = max(self._wake_at, clock.monotonic() + self.lookout.cost * COSTS_BETWEEN)

    @property
    def _must_look(self) -> bool:
        """Woken. With lanes to claim from, that says nothing new: it waits until they are used up."""
        return self._woken and not self.lookout.lanes and clock.monotonic() >= self._wake_at

    def wait_seconds(self, *, room: Callable[[], int]) -> float:
        """Until there may be more to do."""
        if (self.lookout.lanes or self.suspect_is_next) and room():
            return 0.0
        now = clock.monotonic()
        until = self.lookout.due_at
        if self._woken and not self.lookout.lanes:
            until = min(until, self._wake_at)
        if self._quarantine_seen_open or self.runs.hung:
            until = min(until, now + HALF_A_SECOND)
        return max(0.0, min(until, self.settling.flush_by()) - now)

    @property
    def suspect_is_next(self) -> bool:
        return self.takes_suspects and self.lookout.suspect_due and not self.flights.active

    @property
    def is_over(self) -> bool:
        """Whether a worker that is to end when nothing is due has come to that."""
        return self._ends_when_idle and self._idle

    @property
    def _ends_when_idle(self) -> bool:
        return self.options.burst or self.options.quarantine

    @property
    def _idle(self) -> bool:
        busy = self._stale or self._quarantine_seen_open or self.runs.hung
        return self.lookout.nothing_due and not busy

    @property
    def _stale(self) -> bool:
        """In a burst: something landed since the last look, and may have enqueued more."""
        return self._ends_when_idle and self._landings_seen != self.flights.landings
