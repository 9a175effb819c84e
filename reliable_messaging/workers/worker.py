"""The worker's turn: settle what is finished, claim what is next, hand it to the threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from uuid import UUID, uuid4

from django.db import DatabaseError, InterfaceError, connections

from .. import clock, logs, outbox
from ..ids import uuid7
from ..message import Message
from ..workqueue import Horizon, Lane
from .flights import Flights
from .heartbeat import Heartbeat
from .maintenance import Maintenance
from .options import WorkerOptions
from .poll import Pace, PollDelay
from .pool import Pool
from .stop import StopFlag
from .tasks import Tasks, report_lost
from .waiter import Waiter
from .watchdog import Watchdog

FLUSH_SECONDS = 0.02
"""Acknowledgements wait this long at most for the next claim's transaction."""
SHUTDOWN_POLL = 0.2


class OutboxWorker:
    """One worker on one database. ``turn()`` returns how long to wait; a loop or a test calls it."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.id = uuid7()
        self.waiter = Waiter()
        self.stop_flag = StopFlag(self.waiter.wake)
        self.flights = Flights(wake=self.waiter.wake, stopping=self.stop_flag.is_requested)
        self.queue = outbox.queue.using(options.database, worker_id=self.id)
        self.claimed = 0
        self._writer = threading.Lock()
        self._pace = Pace(concurrency=options.concurrency, batch_size=options.batch_size)
        self._poll = PollDelay(minimum=options.poll_min, maximum=options.poll_max)
        self._maintenance = Maintenance(queue=self.queue)
        self._pool = Pool(options.concurrency, on_end=self.waiter.wake)
        self._tasks = self._make_tasks()
        self._heartbeat = Heartbeat(
            worker_id=self.id,
            queue=self.queue,
            flights=self.flights,
            lease=options.lease,
            queues=None if options.selection.only is None else list(options.selection.only),
        )
        self._watchdog = Watchdog(flights=self.flights, lease=options.lease, excused=self._writer.locked)
        self._lanes: tuple[Lane, ...] = ()
        self._queues: tuple[str, ...] = ()
        self._look_at = self._discover_at = clock.monotonic()
        self._flush_at: float | None = None
        self._suspect_due = False
        self._alone = False
        self._nothing_due = False
        self._unanswered: UUID | None = None

    def start(self) -> None:
        self._pool.start()
        self._heartbeat.start()
        self._watchdog.start()

    @property
    def finished(self) -> bool:
        """Whether there is nothing left that this worker should do."""
        if self.stop_flag.requested:
            return True
        if len(self.flights):
            return False
        if self._used_up():
            return True
        return self.options.burst and self._nothing_due

    def turn(self) -> float:
        """Do what can be done now; return the seconds until there may be more."""
        self._recover_unanswered_claim()
        if clock.monotonic() >= self._look_at:
            self._look()
        room = self._room()
        if room and self._suspect_due and not self.flights.active:
            self._claim_suspect()
        elif room and self._lanes and not self._suspect_due:
            self._exchange(room)
        elif self._flush_is_due():
            self._flush()
        return self._wait_seconds()

    def shut_down(self) -> bool:
        """Finish what runs within the grace, release the rest; True when all threads ended."""
        self.stop_flag.request()
        self._pool.close()
        until = clock.monotonic() + self.options.grace.total_seconds()
        try:
            while not self._pool.ended and clock.monotonic() < until:
                self._flush()  # at once: what is released now, another worker can take now
                self.waiter.wait(min(SHUTDOWN_POLL, until - clock.monotonic()))
            self._flush()
            self._release_unfinished()
        except (DatabaseError, InterfaceError) as exc:
            # Nothing is lost: the leases end, and another worker takes over.
            logs.event(logging.ERROR, "messages not released", error=str(exc))
        finally:
            self._watchdog.stop()
            self._heartbeat.stop()
        return self._pool.ended

    def _release_unfinished(self) -> None:
        left = self.flights.unlanded()
        if left:
            self.queue.release(left)
            logs.event(logging.WARNING, "messages released", count=len(left), reason="grace over")

    # Looking

    def _look(self) -> None:
        now = clock.monotonic()
        if now >= self._discover_at:
            self._queues = self.queue.discover_queues(self.options.selection)
            self._discover_at = now + self.options.poll_max.total_seconds()
        else:
            self._queues = self._queues[1:] + self._queues[:1]  # no queue is always first
        seen = self.queue.look(self._queues, self.options.selection)
        revived = self._maintenance.run(seen)
        self._lanes = seen.lanes
        self._suspect_due = seen.suspect_due
        self._nothing_due = not (seen.lanes or seen.suspect_due or revived)
        self._look_at = now + self._look_delay(seen)

    def _look_delay(self, seen: Horizon) -> float:
        delay = self._poll.after(found_work=not self._nothing_due)
        if seen.next_in is not None:
            delay = min(delay, max(seen.next_in, self.options.poll_min))
        return delay.total_seconds()

    # Claiming

    def _room(self) -> int:
        """How many to claim now: a good claim's worth, once the last one is being worked off."""
        if self._alone and self.flights.active:
            return 0
        self._alone = False
        size = self._pace.claim_size()
        if self.options.max_messages is not None:
            size = min(size, self.options.max_messages - self.claimed)
        self.flights.wake_when_at_most(size if self._lanes else 0)
        return 0 if self.flights.active > size else size

    def _exchange(self, room: int) -> None:
        settlements = self.flights.landed()
        token = self._unanswered = uuid4()
        began = clock.monotonic()
        exchanged = self.queue.exchange(
            settlements, lanes=self._lanes, limit=room, lease=self.options.lease, owner_token=token
        )
        self._unanswered = None
        self._after_settling(settlements, exchanged.lost)
        self._submit(exchanged.claimed, leased_at=began)
        if len(exchanged.claimed) < room:
            self._lanes = ()  # all taken: look again before the next claim

    def _claim_suspect(self) -> None:
        """Alone, with nothing else in flight: it may kill this process too."""
        self._flush()
        token = self._unanswered = uuid4()
        began = clock.monotonic()
        claimed = self.queue.claim_suspect(
            lease=self.options.lease, selection=self.options.selection, owner_token=token
        )
        self._unanswered = None
        self._alone = bool(claimed)
        # The next suspect follows at once when nothing else is due; otherwise they take turns.
        self._suspect_due = self._alone and not self._lanes
        self._submit(claimed, leased_at=began)

    def _recover_unanswered_claim(self) -> None:
        """A claim whose COMMIT was not answered may have happened: then its rows are ours."""
        if self._unanswered is not None:
            began = clock.monotonic()
            held = self.queue.held_by(self._unanswered)
            self._unanswered = None
            self._submit(held, leased_at=began - self.options.lease.total_seconds() / 2)

    def _submit(self, messages: Sequence[Message], *, leased_at: float) -> None:
        self.claimed += len(messages)
        self.flights.take_off(messages, leased_at=leased_at)
        for task in self._tasks.split(messages, concurrency=self.options.concurrency):
            self._pool.submit(task)

    # Settling

    def _flush_is_due(self) -> bool:
        if not self.flights.landed():
            return False
        if self._flush_at is None:
            self._flush_at = clock.monotonic() + FLUSH_SECONDS
        return clock.monotonic() >= self._flush_at or not self.flights.active

    def _flush(self) -> None:
        settlements = self.flights.landed()
        self._after_settling(settlements, self.queue.settle(settlements))

    def _after_settling(self, settlements: Sequence[object], lost: Sequence[Message]) -> None:
        self.flights.settled(settlements)  # type: ignore[arg-type]
        self._flush_at = None
        report_lost(lost)

    # Waiting

    def _wait_seconds(self) -> float:
        now = clock.monotonic()
        if (self._lanes or self._suspect_due) and self._room() and self._can_claim():
            return 0.0
        until = self._look_at
        if self._flush_at is not None:
            until = min(until, self._flush_at)
        elif self.flights.landed():
            until = min(until, now + FLUSH_SECONDS)
        return max(0.0, until - now)

    def _can_claim(self) -> bool:
        return not self._suspect_due or not self.flights.active

    def _used_up(self) -> bool:
        limit = self.options.max_messages
        return limit is not None and self.claimed >= limit

    def _make_tasks(self) -> Tasks:
        features = connections[self.options.database].features
        one_writer = not features.has_select_for_update
        return Tasks(
            queue=self.queue,
            flights=self.flights,
            pace=self._pace,
            stopping=self.stop_flag.is_requested,
            chunk_size=self.options.chunk_size,
            before_commit=self._renew_inside_chunk if one_writer else _nothing,
            exclusive=self._writer if one_writer else nullcontext(),
        )

    def _renew_inside_chunk(self) -> None:
        """The open chunk holds the only write lock, so the heartbeat could not renew meanwhile."""
        began = clock.monotonic()
        messages = self.flights.messages()
        self.queue.renew(messages, lease=self.options.lease)
        self.flights.renewed(messages, leased_at=began)


def _nothing() -> None:
    pass
