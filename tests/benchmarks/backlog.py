"""Rows to drain, and rows to keep beside them, by the million.

One message is enqueued for each topic and kept aside; the rows are written from it inside the
database, so that the outbox and the plain queue get the very same ones. They come as bulk enqueues
leave them: a thousand share a due time, ids are in the order of time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any
from uuid import UUID

from django.db import connections, models, transaction
from django.utils import timezone

from reliable_messaging import enqueue
from reliable_messaging.models import OutboxMessage
from reliable_messaging.models.work_item import Status

from .databases import current

BULK = 1_000
STEP = timedelta(milliseconds=1)
"""From the due time of one bulk to that of the next."""


class State(Enum):
    DUE = timedelta(minutes=-10)
    FINISHED = timedelta(minutes=-20)
    DELAYED = timedelta(days=1)
    """The value says when such a row is due, from now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """Rows that were made together."""

    model: type[models.Model]
    using: str
    prefix: str
    """Of their ids."""
    count: int

    def id(self, number: int) -> UUID:
        """Of the row of this number, from 1 to ``count``; claims take them in this order."""
        return UUID(f"{self.prefix}{number:012x}")

    def undone(self, first: int = 1, last: int | None = None) -> int:
        """Rows of the lot that are neither done nor gone: what is done may be kept or deleted."""
        lot = (self.id(first), self.id(last or self.count))
        rows = self.model._base_manager.using(self.using).filter(pk__range=lot)
        return rows.exclude(status=Status.DONE).count()


def sample_payload(number: int) -> dict[str, Any]:
    """About a hundred bytes of JSON: ids and a few values, as events of an application have."""
    return {"order": number, "customer": f"customer-{number % 97}", "total": "129.90", "lines": [1, 2, 3]}


def refill(model: type[models.Model], topic: str, count: int) -> Lot:
    """Nothing but these rows in the default database, all of them due."""
    current().empty()
    lot = add(model, topic, count)
    current().settle()
    return lot


def add(
    model: type[models.Model],
    topic: str,
    count: int,
    *,
    using: str = "default",
    state: State = State.DUE,
) -> Lot:
    template = _template(topic, using)
    lot = Lot(model=model, using=using, prefix=_prefix(), count=count)
    due = timezone.now() + state.value
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        for first in range(1, count + 1, BULK):
            row = dict(_changes(model, using, state, due + first // BULK * STEP))
            row["id"] = (current().numbered_id(lot.prefix), [])
            columns = [str(field.column) for field in model._meta.concrete_fields]
            values = [row.get(column, (column, [])) for column in columns]
            cursor.execute(
                f"INSERT INTO {model._meta.db_table} ({', '.join(columns)}) "
                f"SELECT {', '.join(expression for expression, _ in values)} "
                f"FROM {template}, {current().numbers(first, min(first + BULK - 1, count))} ORDER BY n",
                [parameter for _, parameters in values for parameter in parameters],
            )
    return lot


def _changes(
    model: type[models.Model], using: str, state: State, due: datetime
) -> Iterator[tuple[str, tuple[str, list[Any]]]]:
    """Column by column, what is not as in the template: an expression and its parameters."""
    changes: dict[str, Any] = {"due_at": due, "created_at": min(due, timezone.now())}
    if state is State.FINISHED:
        changes |= {"status": Status.DONE, "attempts": 1, "finished_at": due + timedelta(seconds=1)}
    for column, value in changes.items():
        field = model._meta.get_field(column)
        assert isinstance(field, models.Field)
        yield column, ("%s", [field.get_db_prep_save(value, connections[using])])


def _prefix() -> str:
    """A UUIDv7 of this millisecond up to its last twelve digits; the next one gets a later one."""
    time.sleep(0.002)
    made = f"{time.time_ns() // 1_000_000:012x}"
    return f"{made[:8]}-{made[8:]}-7000-8000-"


@cache
def _template(topic: str, using: str) -> str:
    """The name of a table with one fresh message of the topic."""
    name, outbox = f"template_{topic.replace('.', '_')}", OutboxMessage._meta.db_table
    current().empty(using)
    enqueue(topic, sample_payload(1), using=using)
    current().execute(using, f"CREATE TABLE {name} AS SELECT * FROM {outbox}")
    current().empty(using)
    return name
