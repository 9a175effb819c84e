"""Where is work, and when to look again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta

from .. import clock
from ..message import Message
from ..workqueue import Horizon, Lane, Mark, WorkQueue
from .maintenance import Maintenance
from .options import WorkerOptions
from .poll import PollDelay

COSTS_BETWEEN_LOOKS = 20
"""A look begins at the start of every index. Where the entries of what is long finished pile up there,
because some old snapshot is open, it grows dear: then a twentieth of the time may go into it, while there is
something to claim. But ended leases and other lanes wait for it, so no rest is longer than POLL_MAX; and with
nothing to claim, it is half of the time at most."""


class Lookout:
    """What the last look at the table has shown, until it is used up or out of date."""

    def __init__(
        self, *, queue: WorkQueue[Message], options: WorkerOptions, before_reaping: Callable[[], None]
    ) -> None:
        self.lanes: tuple[Lane, ...] = ()
        self.suspect_due = False
        self.nothing_due = False
        self.look_at = clock.monotonic()
        self.cost = 0.0
        """Of the last look, in seconds."""
        self._rest_until = 0.0
        self._discover_at = self.look_at
        self._usual: tuple[Lane, ...] = ()
        self._queue = queue
        self._options = options
        self._before_reaping = before_reaping
        self._queues: tuple[str, ...] = ()
        self._turns = 0
        self._alert_until = 0.0
        self._is_alert = False
        self._poll = PollDelay(minimum=options.poll_min, maximum=options.poll_max)
        self._maintenance = Maintenance(queue=queue)

    def look(self) -> None:
        now = clock.monotonic()
        # Where nothing due means the end, a queue that has only just come to be must be seen. And what a
        # wake-up is about may well be the first message of its queue.
        discover = now >= self._discover_at or self._options.burst or self._is_alert
        # Where nobody waits, two round trips more make one transaction of both: most of an idle worker's.
        with self._queue.reading() if discover and not self._is_alert else nullcontext():
            if discover and not self._options.quarantine:
                self._queues = self._queue.discover_queues(self._options.selection)
                self._discover_at = now + self._options.poll_max.total_seconds()
            seen = self._queue.look(self._queues, self._options.selection, within=self._options.poll_max)
        looked = clock.monotonic()
        if seen.lease_ended:
            self._before_reaping()
        self.lanes = self._in_turn(seen.lanes)
        self._usual = self.lanes[:1] or self._usual
        self.suspect_due = seen.suspect_due
        more_to_do = self._maintenance.run(seen)
        self.nothing_due = not (seen.lanes or seen.suspect_due or more_to_do)
        # Suspects are not this process's work: while the quarantine has them, there is no hurry.
        self._is_alert = now < self._alert_until
        delay = self._delay(seen, hurry=bool(seen.lanes or more_to_do or self._is_alert))
        self.cost = looked - now
        ended = clock.monotonic()
        rest = min(self.cost * COSTS_BETWEEN_LOOKS, self._options.poll_max.total_seconds())
        self._rest_until = ended + max(rest, self.cost)
        self.look_at = max(now + delay, ended + self.cost)

    @property
    def due_at(self) -> float:
        """When to look again. With something to claim from, there is time for a rest."""
        return max(self.look_at, self._rest_until) if self.lanes else self.look_at

    @contextmanager
    def guessing(self) -> Iterator[bool]:
        """For one claim: take it that there is work where there was some the last time. False when there
        never was."""
        self.lanes = self._usual
        try:
            yield bool(self.lanes)
        finally:
            self.lanes = ()  # nobody has looked

    def stay_alert(self, seconds: float) -> None:
        """Poll fast until a look has begun that much later, whatever is found."""
        self._alert_until = clock.monotonic() + seconds
        self._is_alert = True

    def expect(self, delay: timedelta) -> None:
        """This process has written something that falls due then. What is to be tried again at once is no
        reason for a busy loop."""
        wait = max(delay, self._options.poll_min)
        self.look_at = min(self.look_at, clock.monotonic() + wait.total_seconds())

    def claimed(self, messages: Sequence[Message], *, wanted: int) -> None:
        """What a claim has taken of the first lane. With less than it wanted, that lane is used up until
        the next look; else the next claim begins where this one has ended."""
        first, *others = self.lanes
        if messages:
            last = messages[-1]
            first = replace(first, mark=Mark(last.due_at, last.id))
            self._usual = (first,)
        self.lanes = tuple(others) if len(messages) < wanted else (first, *others)

    def _in_turn(self, lanes: tuple[Lane, ...]) -> tuple[Lane, ...]:
        """The most urgent band first; within it the queues take turns at being first."""
        self._turns += 1
        place = {queue: number for number, queue in enumerate(self._queues)}
        return tuple(
            sorted(lanes, key=lambda lane: (-lane.priority, (place[lane.queue] + self._turns) % len(place)))
        )

    def _delay(self, seen: Horizon, *, hurry: bool) -> float:
        delay = self._poll.after(found_work=hurry)
        if seen.next_in is not None:
            delay = min(delay, max(seen.next_in, self._options.poll_min))
        return delay.total_seconds()
