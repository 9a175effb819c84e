"""How what is asked of a queue becomes a transaction, or a single statement; and who is told of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.db import connections, router, transaction

from ..failpoints import hit
from ..logs import logger
from ..models import WorkItem
from . import settle, single_statement
from .deadlock import retrying_deadlocks
from .settlement import C, Exchange, Settlement, Transition

Observer = Callable[[str, Sequence[Transition]], None]
"""Called with the alias and what changed, inside the transaction that changes it; of acknowledgements
that went in a single statement it is told right after."""

Self = TypeVar("Self", bound="Transactions[Any]")
T = TypeVar("T")


class Transactions(Generic[C]):
    """What the verbs of a queue have in common."""

    def __init__(
        self,
        model: type[WorkItem],
        *,
        retention: Callable[[], timedelta | None],
        observer: Observer | None = None,
        tells_within: Callable[[Any], bool] | None = None,
    ) -> None:
        """``tells_within``: of which items the observer must be told inside the transaction, always."""
        self.model = model
        self.worker_id: UUID | None = None
        self._alias: str | None = None
        self._retention = retention
        self._observer = observer
        self._tells_within = tells_within

    def using(
        self: Self, alias: str | None, *, worker_id: UUID | None = None, observer: Observer | None = None
    ) -> Self:
        """The same queue on another database; ``worker_id`` is written to what it claims."""
        bound = copy.copy(self)
        bound._alias = alias
        bound.worker_id = worker_id
        bound._observer = observer or self._observer
        return bound

    @property
    def alias(self) -> str:
        return self._alias or router.db_for_write(self.model)

    def _observed(self, work: Callable[[], list[Transition]]) -> list[C]:
        """Make transitions and tell the observer, in one transaction; returns the items."""

        def both() -> list[C]:
            transitions = work()
            self._observe(transitions)
            return [transition.item for transition in transitions]

        return self._in_transaction(both)

    @property
    def _keeps_done(self) -> bool:
        return self._retention() != timedelta(0)

    def _is_plain(self, settlements: Sequence[Settlement]) -> bool:
        """Whether all of it is one statement, and that is the whole transaction."""
        return self._fits_one_statement(settlements) and not connections[self.alias].in_atomic_block

    def _fits_one_statement(self, settlements: Sequence[Settlement]) -> bool:
        keep_done = self._keeps_done
        return (
            single_statement.can_serve(self.alias)
            and all(single_statement.can_tell(s, keep_done=keep_done) for s in settlements)
            and not (self._tells_within and any(self._tells_within(s.item) for s in settlements))
        )

    def _at_once(
        self, settlements: Sequence[Settlement], wanted: single_statement.Claim | None
    ) -> Exchange[C]:
        claimed, lost = retrying_deadlocks(lambda: self._execute(settlements, wanted))
        if lost:
            gone = {id(item) for item in lost}
            settlements = [s for s in settlements if id(s.item) not in gone]
        self._observe_done(settlements)
        return Exchange(claimed=claimed, lost=lost)

    def _execute(
        self, settlements: Sequence[Settlement], wanted: single_statement.Claim | None
    ) -> tuple[list[C], list[C]]:
        if settlements:
            hit("before-ack")
        done = [settlement.item for settlement in settlements]
        return single_statement.exchange(self.model, self.alias, done, wanted, keep_done=self._keeps_done)

    def _observe_done(self, settlements: Sequence[Settlement]) -> None:
        """They are committed, and so is the claim: no error of the observer's can change that."""
        try:
            self._observe(settle.Acknowledged(settlements, self.worker_id))
        except Exception:
            logger.exception("What was acknowledged could not be observed.")

    def _quick_then_careful(self, work: Callable[[bool], T]) -> T:
        # Inside a caller's transaction there is no rolling back and trying again.
        if connections[self.alias].in_atomic_block:
            return work(True)
        try:
            return self._in_transaction(lambda: work(False))
        except settle.Mismatch:
            return self._in_transaction(lambda: work(True))

    def _settle(self, settlements: Sequence[Settlement], *, careful: bool) -> list[C]:
        if not settlements:
            return []
        hit("before-ack")
        transitions, lost = settle.settle(
            self.model,
            self.alias,
            settlements,
            keep_done=self._keeps_done,
            careful=careful,
            worker_id=self.worker_id,
        )
        self._observe(transitions)
        return lost

    def _observe(self, transitions: Sequence[Transition]) -> None:
        if transitions and self._observer:
            self._observer(self.alias, transitions)

    def _in_transaction(self, work: Callable[[], T]) -> T:
        if connections[self.alias].in_atomic_block:
            return work()

        def whole() -> T:
            with transaction.atomic(using=self.alias):
                return work()

        return retrying_deadlocks(whole)
