"""WorkQueue: the public verbs, each in a transaction of its own, for any kind of work item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import connections, transaction

from ..conf import get_settings
from ..exceptions import LostClaim
from ..report import FailureKind
from ..retry import LONGEST_WAIT
from . import claim, hand_over, horizon, operate, settle, single_statement, sweep
from .arguments import as_delay, as_duration, as_lease, as_report, as_uuids
from .horizon import Horizon
from .lane import Lane
from .selection import QueueSelection
from .settlement import Abandon, Ack, C, Exchange, Fail, Release, Settlement
from .transactions import Transactions

EVERY_QUEUE = QueueSelection()


class WorkQueue(Transactions[C]):
    """Claim, settle and look after the rows of one table.

    For people who write their own processors::

        for item in outbox.queue.claim(limit=10, lease=30):
            publish(item.topic, item.body)
            outbox.queue.ack([item])

    A verb called inside ``transaction.atomic()`` joins that transaction: an ack then commits
    together with what you wrote. Verbs that settle return the items whose claim was **lost**:
    someone else has them, and nothing was changed.
    """

    # Claiming

    def claim(
        self,
        *,
        limit: int = 1,
        lease: float | timedelta | None = None,
        queues: Sequence[str] | None = None,
    ) -> list[C]:
        """Take up to ``limit`` due items under a lease; suspects are left to ``claim_suspect``."""
        selection = QueueSelection(only=None if queues is None else tuple(queues))
        seen = self.look(self.discover_queues(selection), selection)
        return self.exchange([], lanes=seen.lanes, limit=limit, lease=lease).claimed

    def claim_suspect(
        self,
        *,
        lease: float | timedelta | None = None,
        selection: QueueSelection = EVERY_QUEUE,
        owner_token: UUID | None = None,
    ) -> list[C]:
        """Take one due item whose worker died over it before, to be run alone."""
        return self._in_transaction(
            lambda: claim.claim_suspect(
                self.model,
                self.alias,
                selection=selection,
                lease=as_lease(lease),
                owner_token=owner_token or uuid4(),
                worker_id=self.worker_id,
            )
        )

    def exchange(
        self,
        settlements: Sequence[Settlement],
        *,
        lanes: Sequence[Lane],
        limit: int,
        lease: float | timedelta | None = None,
        owner_token: UUID | None = None,
    ) -> Exchange[C]:
        """Settle what is finished and claim what is next, in one transaction: commits are what cost.

        Choose ``owner_token`` beforehand to be able to ask ``held_by`` when the COMMIT goes unanswered.
        """
        wanted, token = as_lease(lease), owner_token or uuid4()
        if len(lanes) == 1 and self._is_plain(settlements):
            return self._at_once(
                settlements,
                single_statement.Claim(
                    lane=lanes[0],
                    limit=limit,
                    lease=wanted,
                    owner_token=token,
                    worker_id=self.worker_id,
                ),
            )

        def work(careful: bool) -> Exchange[C]:
            lost = self._settle(settlements, careful=careful)
            claimed = claim.claim_lanes(
                self.model,
                self.alias,
                lanes=lanes,
                limit=limit,
                lease=wanted,
                owner_token=token,
                worker_id=self.worker_id,
            )
            return Exchange(claimed=claimed, lost=lost)

        return self._quick_then_careful(work)

    def hand_over(self, lane: Lane | None, *, limit: int, make: Callable[[list[C]], None]) -> list[C]:
        """Due items of the lane become something else, which ``make`` writes in the same transaction; then
        they are done. Without a lane, suspects."""
        return self._in_transaction(
            lambda: hand_over.hand_over(
                self.model, self.alias, lane=lane, limit=limit, make=make, keep_done=self._keeps_done
            )
        )

    def held_by(self, owner_token: UUID) -> list[C]:
        """What a claim with this token holds now."""
        return claim.held_by(self.model, self.alias, owner_token)

    # Settling

    def settle(self, settlements: Sequence[Settlement]) -> list[C]:
        """Apply several settlements at once; returns the lost items."""
        if not settlements:
            return []
        if self._is_plain(settlements):
            return self._at_once(settlements, None).lost
        return self._quick_then_careful(lambda careful: self._settle(settlements, careful=careful))

    def settle_unless_locked(self, settlement: Settlement) -> list[C] | None:
        """The same for one, without waiting for whoever has locked its row: None then."""

        def work() -> list[C] | None:
            if settle.is_locked(self.model, self.alias, settlement.item):
                return None
            return self._settle([settlement], careful=True)

        return self._in_transaction(work)

    def settle_exactly(self, settlements: Sequence[Settlement]) -> None:
        """Apply all of them inside the caller's transaction, or raise LostClaim: roll back then."""
        if settlements and self._fits_one_statement(settlements):
            _, lost = self._execute(settlements, None)
            if lost:
                raise LostClaim(f"The claim of {len(lost)} of {len(settlements)} was lost.")
            self._observe(settle.Acknowledged(settlements, self.worker_id))
            return
        try:
            self._settle(settlements, careful=False)
        except settle.Mismatch as exc:
            raise LostClaim(f"The claim was lost: {exc}.") from exc

    def ack(self, items: Iterable[C]) -> list[C]:
        """→ done."""
        return self.settle([Ack(item=item) for item in items])

    def abandon(
        self,
        items: Iterable[C],
        error: BaseException | str,
        *,
        delay: float | timedelta | None = None,
        transient: bool = False,
    ) -> list[C]:
        """→ ready later, charged to its budget; dead when that is used up."""
        report = as_report(error, FailureKind.TRANSIENT if transient else FailureKind.OWN)
        return self.settle(
            [
                Abandon(item=item, error=report, delay=as_delay(delay, item, transient=transient))
                for item in items
            ]
        )

    def fail(self, items: Iterable[C], error: BaseException | str) -> list[C]:
        """→ dead now."""
        report = as_report(error, FailureKind.OWN)
        return self.settle([Fail(item=item, error=report) for item in items])

    def release(self, items: Iterable[C], *, delay: float | timedelta | None = None) -> list[C]:
        """→ ready, charged to nothing."""
        wait = None if delay is None else min(as_duration(delay), LONGEST_WAIT)
        return self.settle([Release(item=item, delay=wait) for item in items])

    def renew(self, items: Sequence[C], *, lease: float | timedelta | None = None) -> list[C]:
        """Extend the leases; returns the lost items."""
        if not items:
            return []
        return self._in_transaction(lambda: settle.renew(self.model, self.alias, items, as_lease(lease)))

    # Looking after the table

    def discover_queues(self, selection: QueueSelection = EVERY_QUEUE) -> tuple[str, ...]:
        return horizon.discover_queues(self.model, self.alias, selection)

    def look(
        self,
        queues: Iterable[str],
        selection: QueueSelection = EVERY_QUEUE,
        *,
        within: float | timedelta | None = None,
    ) -> Horizon:
        """What is due, and when to look again; leases that end ``within`` (POLL_MAX) are seen coming."""
        ahead = get_settings().POLL_MAX if within is None else as_duration(within)
        return horizon.look(self.model, self.alias, queues, selection, within=ahead)

    def reading(self) -> AbstractContextManager[None]:
        """Several looks in one transaction, and not in one each. Not on SQLite: there it would be a writer's,
        and keep the others out."""
        if connections[self.alias].features.has_select_for_update:
            return transaction.atomic(using=self.alias)
        return nullcontext()

    def reap(self) -> int:
        """Bring back one batch of items whose lease has ended; returns how many."""
        max_crashes = get_settings().MAX_CRASHES
        return len(self._observed(lambda: sweep.reap(self.model, self.alias, max_crashes=max_crashes)))

    def expire(self) -> int:
        """Mark one batch of ready items whose time has passed; returns how many."""
        return len(self._observed(lambda: sweep.expire(self.model, self.alias)))

    def purge(self) -> int:
        """Delete all finished rows that are past retention, batch by batch; returns how many."""
        total = 0
        after: UUID | None = None
        while True:
            count, after = self.purge_batch(after)
            total += count
            if after is None:
                return total

    def purge_batch(self, after: UUID | None = None) -> tuple[int, UUID | None]:
        """One batch of a purge: how many went, and where to go on (None: all is done)."""
        return self._in_transaction(
            lambda: sweep.purge(
                self.model,
                self.alias,
                retention=self._retention(),
                dead_retention=get_settings().DEAD_RETENTION,
                after=after,
            )
        )

    # Operating

    def requeue(self, ids: Iterable[UUID | str]) -> list[C]:
        """Revive dead, expired or cancelled items; returns those that were."""
        wanted, ttl = as_uuids(ids), get_settings().MESSAGE_TTL
        return self._observed(lambda: operate.requeue(self.model, self.alias, wanted, ttl=ttl))

    def cancel(self, ids: Iterable[UUID | str]) -> list[C]:
        """Cancel ready items; returns those that were."""
        wanted = as_uuids(ids)
        return self._observed(lambda: operate.cancel(self.model, self.alias, wanted))

    def postpone(self, ids: Iterable[UUID | str], due_at: Any) -> list[C]:
        """Give waiting items another due time, or an expression for it; returns those that were waiting."""
        wanted = as_uuids(ids)
        return self._observed(lambda: operate.postpone(self.model, self.alias, wanted, due_at))

    def retry_now(self, ids: Iterable[UUID | str]) -> list[C]:
        """Make waiting items due now; returns those that were waiting."""
        wanted = as_uuids(ids)
        return self._observed(lambda: operate.retry_now(self.model, self.alias, wanted))
