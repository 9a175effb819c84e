"""The worker's turn: settle what is finished, claim what is next, hand it to the threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from django.db import connections

from .. import clock, logs, outbox
from ..announce import announce
from ..conf import get_settings
from ..ids import uuid7
from ..session import SessionLimits, discard, handler_limits
from ..waiter import Waiter
from ..wakeup import can_wake
from .calls import Calls
from .claiming import Claiming
from .coroutines import Coroutines
from .flights import Flights
from .guards import Guards
from .heartbeat import Heartbeat
from .launch import TRY_AGAIN, can_start_child, end, end_soon, leave
from .listener import Listener
from .lookout import Lookout
from .options import WorkerOptions
from .poll import Pace
from .pool import Pool
from .quarantine import Quarantine, start_quarantine
from .respite import Respite
from .rhythm import Rhythm
from .runs import Runs
from .settling import Settling
from .stop import StopFlag
from .tasks import Tasks
from .teller import Teller
from .watchdog import Watchdog

SHUTDOWN_POLL = 0.2
UNFINISHED = 1
"""The exit code of a worker that was to stop, and could not do so in order."""
MARGIN = 2.0
"""What a child may need beyond its grace: to settle, and to say goodbye."""


class OutboxWorker:
    """One worker on one database. ``turn()`` returns how long to wait; a loop or a test calls it."""

    def __init__(self, options: WorkerOptions, *, quarantine: Quarantine | None = None) -> None:
        self.options = options
        self.id = uuid7()
        self.waiter = Waiter()
        self.stop_flag = StopFlag(self.waiter.wake)
        self.flights = Flights(
            wake=self.waiter.wake, stopping=self._is_stopping, lease=options.lease.total_seconds()
        )
        self.runs = Runs()
        self._teller = Teller()
        self.queue = outbox.queue.using(
            options.database, worker_id=self.id, observer=partial(announce, teller=self._teller.tell)
        )
        self._closing = False
        self._turn_began: float | None = None
        self._quarantine = quarantine or Quarantine(partial(start_quarantine, options), orphan=options.orphan)
        self._lookout = Lookout(queue=self.queue, options=options, before_reaping=self._keep_own)
        self._settling = Settling(queue=self.queue, flights=self.flights, on_delay=self._lookout.expect)
        self._heartbeat = self._make_heartbeat()
        self._pace = Pace(concurrency=options.concurrency, batch_size=options.batch_size)
        self._pool = self._make_pool(options.concurrency)
        self._coroutines = self._make_coroutines()
        self._writer = threading.Lock()
        self._one_writer = not connections[options.database].features.has_select_for_update
        self._claiming = self._make_claiming()
        # Where no child could find the settings or the database, they are run here, when all else is done.
        self._rhythm = self._make_rhythm(
            takes_suspects=options.quarantine or not (quarantine or can_start_child(options.database))
        )
        self._listener = self._make_listener()
        self._watchdog = Watchdog(reasons=self._make_guards().reasons(), end_process=self._end_process)

    def start(self) -> None:
        self._teller.start()
        self._pool.start()
        self._heartbeat.start()
        if self._listener is not None:
            self._listener.start()
        self._watchdog.start()

    def turn(self) -> float:
        """Do what can be done now; return the seconds until there may be more."""
        self._turn_began = clock.monotonic()
        try:
            self._claiming.recover_unanswered()
            if self.runs.hung:
                self.flights.turn_back_unstarted()  # this process is to be replaced
            if self._listener is not None:
                self._listener.test_if_wanted(connections[self.queue.alias])
            if self._rhythm.may_guess():
                self._guess()
            self._rhythm.look_if_due()
            self._work()
        finally:
            self._turn_began = None
        return self._rhythm.wait_seconds(room=self._room)

    @property
    def finished(self) -> bool:
        """Whether there is nothing left that this worker should do."""
        if self.stop_flag.requested:
            return True
        if len(self.flights):
            return False
        return self.runs.hopeless or self._claiming.used_up or self._rhythm.is_over

    def shut_down(self) -> bool:
        """Finish what runs within the grace, release the rest; True when all threads ended."""
        self._closing = True
        grace = self.options.grace.total_seconds()
        if len(self.runs):
            logs.event(logging.INFO, "worker stopping", id=self.id, running=len(self.runs), grace=grace)
        self.flights.turn_back_unstarted()  # and not only when the handlers before them have ended
        self._pool.close()
        self._coroutines.close()
        self._quarantine.let_go()
        until = clock.monotonic() + grace
        while self._alive > len(self.runs.hung) and clock.monotonic() < until:
            self._try(self._settling.flush)  # at once: what is released now, another worker can take now
            self.waiter.wait(min(SHUTDOWN_POLL, until - clock.monotonic()))
        self._coroutines.cancel()
        self._try(partial(self._claiming.recover_unanswered, now=True))
        self._try(self._settling.flush)
        self._try(partial(self._settling.try_again, now=True))
        self._try(self._release_unfinished)
        self._quarantine.close(within=until - clock.monotonic() + MARGIN)
        self._teller.close(within=until - clock.monotonic() + MARGIN)
        if self._listener is not None:
            self._listener.stop()
        self._watchdog.stop()
        self._heartbeat.stop()
        return not self._alive

    def abort(self) -> None:
        """Just before the process ends without any grace: take the child along."""
        self._quarantine.kill()

    @property
    def must_be_replaced(self) -> bool:
        """A handler hangs and all else is done. Its thread cannot be ended; the process can."""
        return self.runs.hopeless and not self.stop_flag.requested and not self._claiming.used_up

    @property
    def remaining_options(self) -> WorkerOptions:
        """For whoever takes over: what is left of a limit."""
        limit = self.options.max_messages
        left = None if limit is None else limit - self.claimed
        return replace(self.options, max_messages=left, orphan=None)

    @property
    def session_limits(self) -> SessionLimits:
        """For the connections of the claiming thread and the heartbeat, whose statements are short."""
        lease = self.options.lease
        return SessionLimits(
            lease=lease, idle_in_transaction=lease, lock=lease / 4, read=lease, keeps_plans=True
        )

    @property
    def claimed(self) -> int:
        """How many messages so far."""
        return self._claiming.claimed

    @property
    def released(self) -> int:
        """How many messages were given back unrun."""
        return self._settling.released

    # Claiming

    def _guess(self) -> None:
        """Woken while nothing was to do: claim before looking, because a look takes as long as a claim, and
        somebody waits. No more than can begin at once: there may be something more urgent."""
        self._follow()
        room = min(self._room(), self.options.concurrency)
        before = self.claimed
        with self._lookout.guessing() as has_lane:
            if has_lane and room:
                self._claiming.exchange(room)
        if 0 < self.claimed - before < room:
            self._rhythm.guessed_right()

    def _work(self) -> None:
        self._follow()
        self._settling.try_again()
        room = self._room()
        if room and self._lookout.lanes:
            self._claiming.exchange(room)
        elif room and self._rhythm.suspect_is_next:
            self._claiming.claim_suspect()
        elif self._settling.is_due():
            self._settling.flush()

    def _follow(self) -> None:
        session = connections[self.queue.alias].connection
        self._pool.follow(session)
        self._coroutines.follow(session)

    def _room(self) -> int:
        """How many to claim now: none while leases cannot be kept, or while this process is to end."""
        return self._claiming.room() if self._heartbeat.is_fresh and not self.runs.hung else 0

    # Settling

    def _keep_own(self) -> None:
        """Before reaping: after an outage our own leases may have ended too, and nobody took them yet.
        What is finished is settled, what runs is renewed; neither is a crash."""
        self._claiming.recover_unanswered(now=True)
        self._settling.flush()
        self._settling.try_again(now=True)
        self._renew_own()

    def _renew_own(self) -> None:
        messages = self.flights.messages()
        began = clock.monotonic()
        self.flights.lose(self.queue.renew(messages, lease=self.options.lease))
        self.flights.renewed(messages, leased_at=began)

    def _release_unfinished(self) -> None:
        left = self.flights.unlanded()
        if left:
            self.queue.release(left)
            self._settling.released += len(left)
            logs.event(logging.WARNING, "messages released", count=len(left), reason="grace over")

    def _try(self, step: Callable[[], None]) -> None:
        """While stopping: an error of the database ends neither the grace nor the other steps. What
        is not settled is not lost: its lease ends, and another worker takes over."""
        try:
            step()
        except Exception as exc:
            logs.event(logging.ERROR, "database error", error=str(exc), database=self.queue.alias)
            discard(connections[self.queue.alias])

    # Ending

    def _is_stopping(self) -> bool:
        return self.stop_flag.requested or self._closing

    def _begins_nothing(self) -> bool:
        return self._is_stopping() or bool(self.runs.hung)

    @property
    def _alive(self) -> int:
        """How many threads and coroutines have not ended."""
        return self._pool.alive + self._coroutines.alive

    def _end_process(self, reason: str) -> None:
        """For the watchdog: at once, and for good if this worker was to end anyway."""
        end_soon(TRY_AGAIN)
        logs.logger.critical("%s: this process ends at once.", reason)
        if self.stop_flag.requested or self._claiming.used_up:
            end(UNFINISHED)
        leave(replace(self.remaining_options, orphan=self._quarantine.pid))

    # Parts

    def _make_heartbeat(self) -> Heartbeat:
        only = self.options.selection.only
        return Heartbeat(
            worker_id=self.id,
            queue=self.queue,
            flights=self.flights,
            limits=self.session_limits,
            queues=None if only is None else list(only),
        )

    def _make_pool(self, size: int) -> Pool:
        return Pool(
            size,
            alias=self.options.database,
            limits=handler_limits(self.options.lease),
            on_end=self.waiter.wake,
        )

    def _make_coroutines(self) -> Coroutines:
        threads, limit = self.options.concurrency, self.options.async_concurrency
        return Coroutines(
            limit=limit,
            flights=self.flights,
            runs=self.runs,
            calls=Calls(partial(self._make_pool, 1), threads=threads),
            # So many take their time at once: to the pace each is as short as that many threads make it.
            learn=lambda duration: self._pace.learn(duration * threads / limit),
            stopping=self._begins_nothing,
            on_end=self.waiter.wake,
        )

    def _make_claiming(self) -> Claiming:
        return Claiming(
            options=self.options,
            queue=self.queue,
            flights=self.flights,
            lookout=self._lookout,
            settling=self._settling,
            tasks=self._make_tasks(),
            pool=self._pool,
            coroutines=self._coroutines,
        )

    def _make_tasks(self) -> Tasks:
        return Tasks(
            queue=self.queue,
            flights=self.flights,
            runs=self.runs,
            pace=self._pace,
            respite=Respite(),
            stopping=self._begins_nothing,
            chunk_size=self.options.chunk_size,
            # The open chunk holds the only write lock there is, so the heartbeat cannot renew meanwhile.
            before_commit=self._renew_own if self._one_writer else _nothing,
            exclusive=self._writer if self._one_writer else nullcontext(),
        )

    def _make_rhythm(self, *, takes_suspects: bool) -> Rhythm:
        return Rhythm(
            options=self.options,
            lookout=self._lookout,
            flights=self.flights,
            settling=self._settling,
            quarantine=self._quarantine,
            runs=self.runs,
            takes_suspects=takes_suspects,
        )

    def _make_listener(self) -> Listener | None:
        """None where nobody could wake this worker, or it is not there long enough to be woken."""
        options = self.options
        ends_soon = options.burst or options.quarantine
        if ends_soon or not options.wakeup or not can_wake(connections[options.database]):
            return None
        return Listener(
            alias=get_settings().WAKEUP_DATABASE or options.database,
            limits=self.session_limits,
            name=str(self.id),
            on_heard=self._rhythm.wake_up,
            wake=self.waiter.wake,
        )

    def _make_guards(self) -> Guards:
        return Guards(
            flights=self.flights,
            runs=self.runs,
            heartbeat=self._heartbeat,
            lease=self.options.lease.total_seconds(),
            one_writer=self._one_writer,
            holds_write_lock=self._writer.locked,
            turn_began=lambda: self._turn_began,
        )


def _nothing() -> None:
    pass
