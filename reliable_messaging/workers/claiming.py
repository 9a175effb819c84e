"""Claiming what is next, in the transaction that settles what is finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from .. import clock
from ..failpoints import hit
from ..message import Message
from ..workqueue import WorkQueue
from .connections import is_gone
from .coroutines import Coroutines
from .flights import Flights
from .lookout import Lookout
from .options import WorkerOptions
from .pool import Pool
from .settling import Settling
from .tasks import Tasks

ASK_AGAIN_SECONDS = 1.0
UNANSWERED = (OperationalError, InterfaceError)
"""After these nobody knows whether the transaction was committed."""


@dataclass(slots=True, kw_only=True)
class Claiming:
    options: WorkerOptions
    queue: WorkQueue[Message]
    flights: Flights
    lookout: Lookout
    settling: Settling
    tasks: Tasks
    pool: Pool
    coroutines: Coroutines
    claimed: int = 0
    """How many messages so far."""
    _unanswered: dict[UUID, float] = field(default_factory=dict)
    """Tokens of claims whose COMMIT was not answered, and when each began."""
    _ask_at: float = 0.0

    @property
    def used_up(self) -> bool:
        limit = self.options.max_messages
        return limit is not None and self.claimed >= limit

    def room(self) -> int:
        """How many to claim now: a good claim's worth, once the last one is being worked off."""
        if self.tasks.respite.is_on:
            return 0
        size = self.tasks.pace.claim_size()
        if self.options.max_messages is not None:
            size = min(size, self.options.max_messages - self.claimed)
        running = self.coroutines.running  # they occupy no thread, so they are not in the way
        self.flights.wake_when_at_most(size + running if self.lookout.lanes else 0)
        return 0 if self.flights.active - running > size else size

    def exchange(self, room: int) -> None:
        """From the first lane that the lookout has seen: the others have their turn when it is used up."""
        settlements = self.settling.begin()
        token, began = self._begin()
        try:
            exchanged = self.queue.exchange(
                settlements,
                lanes=self.lookout.lanes[:1],
                limit=room,
                lease=self.options.lease,
                owner_token=token,
            )
        except Exception as exc:
            if isinstance(exc, DatabaseError) and not isinstance(exc, UNANSWERED):
                del self._unanswered[token]  # the transaction was rolled back, the claim with it
            elif is_gone(connections[self.queue.alias]):
                raise
            # Perhaps a settlement cannot be written, or somebody has locked its row. If it is none of
            # them, it is the claim, and trying again at once would be a busy loop.
            if self.settling.one_by_one(exc):
                raise
            return
        del self._unanswered[token]
        self.settling.done(settlements, exchanged.lost)
        self._submit(exchanged.claimed, leased_at=began)
        self.lookout.claimed(exchanged.claimed, wanted=room)

    def claim_suspect(self) -> None:
        """In quarantine, alone: it may kill this process too."""
        self.settling.flush()
        token, began = self._begin()
        claimed = self.queue.claim_suspect(
            lease=self.options.lease, selection=self.options.selection, owner_token=token
        )
        del self._unanswered[token]
        self.lookout.suspect_due = bool(claimed)
        self._submit(claimed, leased_at=began)

    def recover_unanswered(self, *, now: bool = False) -> None:
        """A claim whose COMMIT was not answered may have happened, or may yet happen, while a server
        waits for its standby: then its rows are ours. Asked about once a second, until the lease ends."""
        if not self._unanswered or (clock.monotonic() < self._ask_at and not now):
            return
        self._ask_at = clock.monotonic() + ASK_AGAIN_SECONDS
        for token, began in list(self._unanswered.items()):
            is_over = clock.monotonic() > began + self.options.lease.total_seconds()
            held = self.queue.held_by(token)
            if held or is_over:
                del self._unanswered[token]
            self._submit(held, leased_at=began)

    def _begin(self) -> tuple[UUID, float]:
        token, began = uuid4(), clock.monotonic()
        if not self._unanswered:
            self._ask_at = began  # should this one go unanswered, the next turn asks
        self._unanswered[token] = began
        return token, began

    def _submit(self, messages: Sequence[Message], *, leased_at: float) -> None:
        if messages:
            hit("claim-committed")
        self.claimed += len(messages)
        self.flights.take_off(messages, leased_at=leased_at)
        rest = self.coroutines.take(messages)
        for task in self.tasks.split(rest, concurrency=self.options.concurrency):
            self.pool.submit(task)
