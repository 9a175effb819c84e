"""Claiming what is next, in the transaction that settles what is finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from .. import clock
from ..failpoints import hit
from ..message import Message
from ..workqueue import WorkQueue
from .flights import Flights
from .lookout import Lookout
from .options import WorkerOptions
from .pool import Pool
from .settling import AWAY, Settling
from .tasks import Tasks


@dataclass(slots=True, kw_only=True)
class Claiming:
    options: WorkerOptions
    queue: WorkQueue[Message]
    flights: Flights
    lookout: Lookout
    settling: Settling
    tasks: Tasks
    pool: Pool
    claimed: int = 0
    """How many messages so far."""
    _unanswered: UUID | None = field(default=None)

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
        self.flights.wake_when_at_most(size if self.lookout.lanes else 0)
        return 0 if self.flights.active > size else size

    def exchange(self, room: int) -> None:
        settlements = self.flights.landed()
        token = self._unanswered = uuid4()
        began = clock.monotonic()
        try:
            exchanged = self.queue.exchange(
                settlements,
                lanes=self.lookout.lanes,
                limit=room,
                lease=self.options.lease,
                owner_token=token,
            )
        except AWAY:
            raise
        except Exception:
            # A settlement that cannot be written: the transaction was rolled back, the claim with it.
            self._unanswered = None
            self.settling.one_by_one()
            return
        self._unanswered = None
        self.settling.done(settlements, exchanged.lost)
        self._submit(exchanged.claimed, leased_at=began)
        if len(exchanged.claimed) < room:
            self.lookout.used_up()

    def claim_suspect(self) -> None:
        """In quarantine, alone: it may kill this process too."""
        self.settling.flush()
        token = self._unanswered = uuid4()
        began = clock.monotonic()
        claimed = self.queue.claim_suspect(
            lease=self.options.lease, selection=self.options.selection, owner_token=token
        )
        self._unanswered = None
        self.lookout.suspect_due = bool(claimed)
        self._submit(claimed, leased_at=began)

    def recover_unanswered(self) -> None:
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
        for task in self.tasks.split(messages, concurrency=self.options.concurrency):
            self.pool.submit(task)
