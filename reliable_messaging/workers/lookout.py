"""Where is work, and when to look again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from .. import clock
from ..message import Message
from ..workqueue import Horizon, Lane, Mark, WorkQueue
from .maintenance import Maintenance
from .options import WorkerOptions
from .poll import PollDelay

COSTS_BETWEEN_LOOKS = 20
"""A look begins at the start of every index. Where the entries of what is long finished pile up there,
because some old snapshot is open, it grows dear: at most a twentieth of the time may go into it."""


class Lookout:
    """What the last look at the table has shown, until it is used up or out of date."""

    def __init__(
        self, *, queue: WorkQueue[Message], options: WorkerOptions, before_reaping: Callable[[], None]
    ) -> None:
        self.lanes: tuple[Lane, ...] = ()
        self.suspect_due = False
        self.nothing_due = False
        self.look_at = clock.monotonic()
        self._discover_at = self.look_at
        self._queue = queue
        self._options = options
        self._before_reaping = before_reaping
        self._queues: tuple[str, ...] = ()
        self._turns = 0
        self._poll = PollDelay(minimum=options.poll_min, maximum=options.poll_max)
        self._maintenance = Maintenance(queue=queue)

    def look(self) -> None:
        now = clock.monotonic()
        # Where nothing due means the end, a queue that has only just come to be must be seen.
        if (now >= self._discover_at or self._options.burst) and not self._options.quarantine:
            self._queues = self._queue.discover_queues(self._options.selection)
            self._discover_at = now + self._options.poll_max.total_seconds()
        seen = self._queue.look(self._queues, self._options.selection, within=self._options.poll_max)
        looked = clock.monotonic()
        if seen.lease_ended:
            self._before_reaping()
        self.lanes = self._in_turn(seen.lanes)
        self.suspect_due = seen.suspect_due
        more_to_do = self._maintenance.run(seen)
        self.nothing_due = not (seen.lanes or seen.suspect_due or more_to_do)
        # Suspects are not this process's work: while the quarantine has them, there is no hurry.
        delay = self._delay(seen, found_work=bool(seen.lanes or more_to_do))
        self.look_at = max(now + delay, clock.monotonic() + (looked - now) * COSTS_BETWEEN_LOOKS)

    def claimed(self, messages: Sequence[Message], *, wanted: int) -> None:
        """What a claim has taken of the first lane. With less than it wanted, that lane is used up until
        the next look; else the next claim begins where this one has ended."""
        first, *others = self.lanes
        if len(messages) < wanted:
            self.lanes = tuple(others)
        else:
            last = messages[-1]
            self.lanes = (replace(first, mark=Mark(last.due_at, last.id)), *others)

    def _in_turn(self, lanes: tuple[Lane, ...]) -> tuple[Lane, ...]:
        """The most urgent band first; within it the queues take turns at being first."""
        self._turns += 1
        place = {queue: number for number, queue in enumerate(self._queues)}
        return tuple(
            sorted(lanes, key=lambda lane: (-lane.priority, (place[lane.queue] + self._turns) % len(place)))
        )

    def _delay(self, seen: Horizon, *, found_work: bool) -> float:
        delay = self._poll.after(found_work=found_work)
        if seen.next_in is not None:
            delay = min(delay, max(seen.next_in, self._options.poll_min))
        return delay.total_seconds()
