"""Ending a claim: done, ready again, or dead. Every write compares the owner token."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, overload
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet

from .. import clock
from ..conf import get_settings
from ..failpoints import hit
from ..models import Status, WorkItem
from ..report import ErrorReport, FailureKind
from . import by_id
from .failures import forget_failures, record_failures
from .rows import rows_of
from .settlement import Abandon, Ack, Fail, Release, Settlement, Transition

UNCLAIMED: dict[str, Any] = {"owner_token": None, "leased_until": None}
DONE: dict[str, Any] = {
    **UNCLAIMED,
    "status": Status.DONE,
    "transient_failures": 0,
    "first_failed_at": None,
}


class Mismatch(Exception):
    """Fewer rows matched the fence than were to be settled."""


def settle(
    model: type[WorkItem],
    using: str,
    settlements: Sequence[Settlement],
    *,
    keep_done: bool,
    careful: bool,
    worker_id: UUID | None = None,
) -> tuple[list[Transition], list[Any]]:
    """Apply the settlements; return what changed and the items whose claim was lost.

    ``careful`` first locks and lists the rows that are still ours, so that the lost ones can be
    named. Without it one UPDATE does the work, and a shortfall raises Mismatch: the caller rolls
    back and comes again carefully. Losing a claim is rare; a second statement for each batch is not.
    """
    lost: list[Any] = []
    if careful:
        held = _still_held(model, using, [s.item for s in settlements])
        lost = [s.item for s in settlements if (s.item.id, s.item.owner_token) not in held]
        settlements = [s for s in settlements if (s.item.id, s.item.owner_token) in held]
    made = transitions(settlements, worker_id)
    _write_done(model, using, settlements, keep_done=keep_done)
    for settlement, transition in zip(settlements, made, strict=True):
        if not isinstance(settlement, Ack):
            _expect(_fenced(model, using, [settlement.item]).update(**_values(settlement, transition)), 1)
    record_failures(using, made)
    return made, lost


class Acknowledged(Sequence[Transition]):
    """The transitions of plain acknowledgements, each made when it is asked for: most are never told of."""

    __slots__ = ("_settlements", "_worker_id")

    def __init__(self, settlements: Sequence[Settlement], worker_id: UUID | None) -> None:
        self._settlements = settlements
        self._worker_id = worker_id

    def __len__(self) -> int:
        return len(self._settlements)

    @overload
    def __getitem__(self, index: int) -> Transition: ...
    @overload
    def __getitem__(self, index: slice) -> Acknowledged: ...
    def __getitem__(self, index: int | slice) -> Transition | Acknowledged:
        if isinstance(index, slice):
            return Acknowledged(self._settlements[index], self._worker_id)
        return _decide(self._settlements[index], self._worker_id)


def transitions(settlements: Iterable[Settlement], worker_id: UUID | None) -> list[Transition]:
    """What the settlements come to, once written."""
    return [_decide(settlement, worker_id) for settlement in settlements]


def _decide(settlement: Settlement, worker_id: UUID | None) -> Transition:
    item = settlement.item
    if isinstance(settlement, Ack):
        return Transition(
            item=item,
            status=Status.DONE,
            duration=settlement.duration,
            result=settlement.result,
            worker_id=worker_id,
        )
    if isinstance(settlement, Release):
        return Transition(item=item, status=Status.READY, delay=settlement.delay, worker_id=worker_id)
    is_dead = isinstance(settlement, Fail) or _used_up(settlement)
    return Transition(
        item=item,
        status=Status.DEAD if is_dead else Status.READY,
        error=settlement.error,
        delay=None if isinstance(settlement, Fail) or is_dead else settlement.delay,
        duration=settlement.duration,
        worker_id=worker_id,
    )


def _used_up(settlement: Abandon) -> bool:
    # Decided from the values at the claim: while the token matches, nobody else changes them.
    item, error = settlement.item, settlement.error
    if error.kind != FailureKind.TRANSIENT:
        return bool(item.failures + 1 >= item.max_attempts)
    if item.first_failed_at is None or item.claimed_at is None:
        return False
    # Both: a weekend without workers uses up the window, but no attempts.
    return bool(
        item.claimed_at - item.first_failed_at >= get_settings().TRANSIENT_WINDOW
        and item.transient_failures + 1 >= item.max_attempts
    )


def _values(settlement: Settlement, transition: Transition) -> dict[str, Any]:
    values = {**UNCLAIMED, "status": transition.status}
    if isinstance(settlement, Release):
        return values if settlement.delay is None else {**values, "due_at": clock.now() + settlement.delay}
    assert transition.error is not None
    values |= {"last_error": str(transition.error), **_charge(settlement.item, transition.error)}
    if transition.status == Status.DEAD:
        return {**values, "finished_at": clock.now()}
    assert transition.delay is not None
    return {**values, "due_at": clock.now() + transition.delay}


def _charge(item: Any, error: ErrorReport) -> dict[str, Any]:
    if error.kind == FailureKind.TRANSIENT:
        first = clock.now() if item.first_failed_at is None else item.first_failed_at
        return {"transient_failures": item.transient_failures + 1, "first_failed_at": first}
    return {"failures": item.failures + 1, "transient_failures": 0, "first_failed_at": None}


def _write_done(
    model: type[WorkItem], using: str, settlements: Iterable[Settlement], *, keep_done: bool
) -> None:
    acks = [s for s in settlements if isinstance(s, Ack)]
    if not keep_done:
        for token, ids in _ids_by_token(ack.item for ack in acks).items():
            _expect(by_id.delete_claimed(model, using, ids, token), len(ids))
        forget_failures(using, [a.item.id for a in acks if had_trouble(a.item)])
        return
    done = {**DONE, "finished_at": clock.now()}
    for token, ids in _ids_by_token(ack.item for ack in acks if ack.result is None).items():
        _expect(by_id.update_claimed(model, using, ids, token, done), len(ids))
    for ack in acks:
        if ack.result is not None:
            values = {**done, "result": ack.result}
            _expect(_fenced(model, using, [ack.item]).update(**values), 1)


def had_trouble(item: Any) -> bool:
    return bool(item.attempts > 1 or item.failures or item.transient_failures or item.crashes)


def renew(model: type[WorkItem], using: str, items: Sequence[Any], lease: timedelta) -> list[Any]:
    """Extend the leases; return the items whose claim was lost. Call inside a transaction.

    A row that is locked is skipped, and still counts as ours while it carries our token: it is
    our own settlement that holds it.
    """
    tokens = {item.id: item.owner_token for item in items}
    rows = rows_of(model, using).filter(pk__in=list(tokens), status=Status.CLAIMED)
    free = rows.select_for_update(skip_locked=True).values_list("pk", "owner_token")
    ours = [pk for pk, token in free if tokens[pk] == token]
    hit("renew")
    rows_of(model, using).filter(pk__in=ours).update(leased_until=clock.now() + lease)
    if len(ours) == len(items):
        return []
    held = {pk for pk, token in rows.values_list("pk", "owner_token") if tokens[pk] == token}
    return [item for item in items if item.id not in held]


def is_locked(model: type[WorkItem], using: str, item: Any) -> bool:
    """Whether somebody else has locked its row. If not, it is locked by us. Call inside a transaction."""
    row = rows_of(model, using).filter(pk=item.id)
    if not connections[using].features.has_select_for_update_skip_locked:
        return False
    return not list(row.select_for_update(skip_locked=True).values_list("pk")) and row.exists()


def _still_held(model: type[WorkItem], using: str, items: Sequence[Any]) -> set[tuple[UUID, UUID]]:
    held: set[tuple[UUID, UUID]] = set()
    for group in _by_token(items).values():
        rows = _fenced(model, using, group).select_for_update()
        held |= set(rows.values_list("pk", "owner_token"))
    return held


def _fenced(model: type[WorkItem], using: str, items: Sequence[Any]) -> QuerySet[Any, Any]:
    return rows_of(model, using).filter(
        pk__in=[item.id for item in items],
        status=Status.CLAIMED,
        owner_token=items[0].owner_token,
    )


def _by_token(items: Iterable[Any]) -> dict[UUID | None, list[Any]]:
    groups: dict[UUID | None, list[Any]] = defaultdict(list)
    for item in items:
        groups[item.owner_token].append(item)
    return groups


def _ids_by_token(items: Iterable[Any]) -> dict[UUID | None, list[UUID]]:
    return {token: [item.id for item in group] for token, group in _by_token(items).items()}


def _expect(matched: int, wanted: int) -> None:
    if matched != wanted:
        raise Mismatch(f"{matched} of {wanted} rows still had the owner token")
