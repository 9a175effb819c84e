"""The worker's turn: settle what is finished, claim what is next, hand it to the threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from uuid import UUID, uuid4

from django.db import connections

from .. import clock, logs, outbox
from ..failpoints import hit
from ..ids import uuid7
from ..message import Message
from .connections import discard
from .flights import Flights
from .heartbeat import Heartbeat
from .lookout import Lookout
from .options import WorkerOptions
from .poll import Pace
from .pool import Pool
from .settling import AWAY, Settling
from .stop import StopFlag
from .tasks import Tasks
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
        self.claimed = 0
        self.waiter = Waiter()
        self.stop_flag = StopFlag(self.waiter.wake)
        self.flights = Flights(wake=self.waiter.wake, stopping=self.stop_flag.is_requested)
        self.queue = outbox.queue.using(options.database, worker_id=self.id)
        self._writer = threading.Lock()
        self._settling = Settling(queue=self.queue, flights=self.flights)
        self._lookout = Lookout(queue=self.queue, options=options, before_reaping=self._keep_own)
        self._pace = Pace(concurrency=options.concurrency, batch_size=options.batch_size)
        self._pool = Pool(options.concurrency, alias=options.database, on_end=self.waiter.wake)
        self._tasks = self._make_tasks()
        self._heartbeat = Heartbeat(
            worker_id=self.id,
            queue=self.queue,
            flights=self.flights,
            lease=options.lease,
            queues=None if options.selection.only is None else list(options.selection.only),
        )
        self._watchdog = Watchdog(flights=self.flights, lease=options.lease, excused=self._writer.locked)
        self._flush_at: float | None = None
        self._alone = False
        self._landings_seen = -1
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
        return self._used_up() or (self.options.burst and self._lookout.nothing_due and not self._stale)

    def turn(self) -> float:
        """Do what can be done now; return the seconds until there may be more."""
        self._recover_unanswered_claim()
        if clock.monotonic() >= self._lookout.look_at or (self._stale and not len(self.flights)):
            self._landings_seen = self.flights.landings
            self._lookout.look()
        room = self._room()
        if room and self._suspects_turn():
            self._claim_suspect()
        elif room and self._lookout.lanes and not self._lookout.holds_back:
            self._exchange(room)
        elif self._flush_is_due():
            self._flush()
        return self._wait_seconds()

    def shut_down(self) -> bool:
        """Finish what runs within the grace, release the rest; True when all threads ended."""
        self.stop_flag.request()
        self._pool.close()
        until = clock.monotonic() + self.options.grace.total_seconds()
        while not self._pool.ended and clock.monotonic() < until:
            self._try(self._flush)  # at once: what is released now, another worker can take now
            self.waiter.wait(min(SHUTDOWN_POLL, until - clock.monotonic()))
        self._try(self._recover_unanswered_claim)
        self._try(self._flush)
        self._try(self._release_unfinished)
        self._watchdog.stop()
        self._heartbeat.stop()
        return self._pool.ended

    @property
    def released(self) -> int:
        """How many messages were given back unrun."""
        return self._settling.released

    # Claiming

    def _room(self) -> int:
        """How many to claim now: a good claim's worth, once the last one is being worked off."""
        if (self._alone and self.flights.active) or not self._heartbeat.is_fresh:
            return 0
        self._alone = False
        size = self._pace.claim_size()
        if self.options.max_messages is not None:
            size = min(size, self.options.max_messages - self.claimed)
        self.flights.wake_when_at_most(size if self._lookout.lanes else 0)
        return 0 if self.flights.active > size else size

    def _exchange(self, room: int) -> None:
        settlements = self.flights.landed()
        token = self._unanswered = uuid4()
        began = clock.monotonic()
        try:
            exchanged = self.queue.exchange(
                settlements,
                lanes=self._lookout.lanes,
                limit=room,
                lease=self.options.lease,
                owner_token=token,
            )
        except AWAY:
            raise
        except Exception:
            # A settlement that cannot be written: the transaction was rolled back, the claim with it.
            self._unanswered = None
            self._settling.one_by_one()
            return
        self._unanswered = None
        self._flush_at = None
        self._settling.done(settlements, exchanged.lost)
        self._submit(exchanged.claimed, leased_at=began)
        if len(exchanged.claimed) < room:
            self._lookout.used_up()

    def _claim_suspect(self) -> None:
        """Alone, with nothing else in flight: it may kill this process too."""
        self._flush()
        token = self._unanswered = uuid4()
        began = clock.monotonic()
        claimed = self.queue.claim_suspect(
            lease=self.options.lease, selection=self.options.selection, owner_token=token
        )
        self._unanswered = None
        self._alone = self._lookout.suspect_due = bool(claimed)
        if claimed:
            self._lookout.suspect_taken()
        self._submit(claimed, leased_at=began)

    def _recover_unanswered_claim(self) -> None:
        """A claim whose COMMIT was not answered may have happened: then its rows are ours."""
        if self._unanswered is not None:
            began = clock.monotonic()
            held = self.queue.held_by(self._unanswered)
            self._unanswered = None
            self._submit(held, leased_at=began - self.options.lease.total_seconds() / 2)

    def _submit(self, messages: Sequence[Message], *, leased_at: float) -> None:
        if messages:
            hit("claim-committed")
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
        self._flush_at = None
        self._settling.flush()

    def _keep_own(self) -> None:
        """Before reaping: after an outage our own leases may have ended too, and nobody took them yet.
        What is finished is settled, what runs is renewed; neither is a crash."""
        self._flush()
        self._renew(self.flights.messages())

    def _renew(self, messages: Sequence[Message]) -> None:
        began = clock.monotonic()
        self.flights.lose(self.queue.renew(messages, lease=self.options.lease))
        self.flights.renewed(messages, leased_at=began)

    def _release_unfinished(self) -> None:
        left = self.flights.unlanded()
        if left:
            self.queue.release(left)
            logs.event(logging.WARNING, "messages released", count=len(left), reason="grace over")

    def _try(self, step: Callable[[], None]) -> None:
        """While stopping: an error of the database ends neither the grace nor the other steps. What
        is not settled is not lost: its lease ends, and another worker takes over."""
        try:
            step()
        except Exception as exc:
            logs.event(logging.ERROR, "database error", error=str(exc), database=self.queue.alias)
            discard(connections[self.queue.alias])

    # Waiting

    def _wait_seconds(self) -> float:
        now = clock.monotonic()
        if self._room() and self._can_claim():
            return 0.0
        until = self._lookout.look_at
        if self._flush_at is not None:
            until = min(until, self._flush_at)
        elif self.flights.landed():
            until = min(until, now + FLUSH_SECONDS)
        return max(0.0, until - now)

    def _can_claim(self) -> bool:
        return self._suspects_turn() or (bool(self._lookout.lanes) and not self._lookout.holds_back)

    def _suspects_turn(self) -> bool:
        if not self._lookout.suspect_due or self.flights.active:
            return False
        return self._lookout.holds_back or not self._lookout.lanes

    @property
    def _stale(self) -> bool:
        """In a burst: something landed since the last look, and may have enqueued more."""
        return self.options.burst and self._landings_seen != self.flights.landings

    def _used_up(self) -> bool:
        limit = self.options.max_messages
        return limit is not None and self.claimed >= limit

    def _make_tasks(self) -> Tasks:
        one_writer = not connections[self.options.database].features.has_select_for_update
        return Tasks(
            queue=self.queue,
            flights=self.flights,
            pace=self._pace,
            stopping=self.stop_flag.is_requested,
            chunk_size=self.options.chunk_size,
            # The open chunk holds the only write lock there is, so the heartbeat cannot renew meanwhile.
            before_commit=(lambda: self._renew(self.flights.messages())) if one_writer else _nothing,
            exclusive=self._writer if one_writer else nullcontext(),
        )


def _nothing() -> None:
    pass
