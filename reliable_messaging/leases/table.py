"""The table of leases. Every verb is a short transaction of its own, and goes by the database's clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import connections, transaction
from django.db.models import F, Q, QuerySet

from .. import clock
from ..alias import in_transaction
from ..exceptions import LeaseInTransaction
from ..models import Lease
from ..workqueue.deadlock import retrying_deadlocks

T = TypeVar("T")

COLUMNS = ("name", "token", "owner", "expires_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAnswer:
    """What the database says of a lease."""

    name: str
    ours: bool
    """Whether what was asked for was done."""
    token: int
    owner: str
    expires_at: datetime | None
    server_time: datetime

    @property
    def ends_in(self) -> timedelta:
        if self.expires_at is None:
            return timedelta(0)
        return max(timedelta(0), self.expires_at - self.server_time)


def take(alias: str, name: str, *, owner: str, duration: timedelta) -> LeaseAnswer:
    """With the next token, if nobody holds it."""
    free = Q(expires_at__isnull=True) | Q(expires_at__lte=clock.now())

    def work() -> LeaseAnswer:
        taken = _row(alias, name).filter(free)
        ours = taken.update(
            token=F("token") + 1, owner=owner, acquired_at=clock.now(), expires_at=clock.now() + duration
        )
        return _answer(alias, name, ours=bool(ours))

    try:
        return _alone(alias, work)
    except Lease.DoesNotExist:
        # Once in the life of a name. Of several at once one stores the row, and then each of them tries.
        _alone(alias, lambda: _rows(alias).bulk_create([Lease(name=name)], ignore_conflicts=True))
        return _alone(alias, work)


def renew(alias: str, name: str, token: int, *, duration: timedelta) -> LeaseAnswer | None:
    """None when it is over. Not once it has ended, even if nobody has taken it yet: its holder may have
    been told so."""

    def work() -> LeaseAnswer | None:
        held = _row(alias, name).filter(token=token, expires_at__gt=clock.now())
        if not held.update(expires_at=clock.now() + duration):
            return None
        return _answer(alias, name, ours=True)

    return _alone(alias, work)


def release(alias: str, name: str, token: int) -> bool:
    """Whether it was still held."""

    def work() -> bool:
        held = _row(alias, name).filter(token=token, expires_at__gt=clock.now())
        return bool(held.update(expires_at=None))

    return _alone(alias, work)


def take_away(alias: str, name: str) -> bool:
    """Whoever holds it. What it did is fenced by its token, if the resource compares tokens."""
    return bool(_row(alias, name).filter(expires_at__gt=clock.now()).update(expires_at=None))


def look(alias: str, name: str) -> LeaseAnswer | None:
    try:
        return _answer(alias, name, ours=False)
    except Lease.DoesNotExist:
        return None


def look_at_all(alias: str) -> list[LeaseAnswer]:
    rows = _rows(alias).order_by("name").values_list(*COLUMNS, clock.now())
    return [_of_row(row, ours=False) for row in rows]


def _rows(alias: str) -> Any:
    return Lease._base_manager.using(alias)


def _row(alias: str, name: str) -> QuerySet[Lease, Lease]:
    rows: QuerySet[Lease, Lease] = _rows(alias).filter(pk=name)
    return rows


def _answer(alias: str, name: str, *, ours: bool) -> LeaseAnswer:
    return _of_row(_row(alias, name).values_list(*COLUMNS, clock.now()).get(), ours=ours)


def _of_row(row: Any, *, ours: bool) -> LeaseAnswer:
    name, token, owner, expires_at, server_time = row
    return LeaseAnswer(
        name=name, ours=ours, token=token, owner=owner, expires_at=expires_at, server_time=server_time
    )


def _alone(alias: str, work: Callable[[], T]) -> T:
    if in_transaction(connections[alias]):
        raise LeaseInTransaction

    def whole() -> T:
        with transaction.atomic(using=alias):
            return work()

    return retrying_deadlocks(whole)
