"""Messages that wait to be drained.

Enqueued once for each topic and number, kept aside, and copied from there into the outbox or into
the plain queue before each side: both get the very same rows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from django.db import connection, models

from reliable_messaging import OutgoingMessage, enqueue_many
from reliable_messaging.models import OutboxMessage

from .benchapp.models import PlainItem
from .database import empty_tables, settle_tables

BULK = 1_000


def sample_payload(number: int) -> dict[str, Any]:
    """About a hundred bytes of JSON: ids and a few values, as events of an application have."""
    return {"order": number, "customer": f"customer-{number % 97}", "total": "129.90", "lines": [1, 2, 3]}


def fill_outbox(topic: str, count: int) -> None:
    _fill(OutboxMessage, topic, count)


def fill_plain_queue(topic: str, count: int) -> None:
    _fill(PlainItem, topic, count)


def _fill(model: type[models.Model], topic: str, count: int) -> None:
    kept = _kept_aside(topic, count)
    empty_tables()
    columns = ", ".join(str(field.column) for field in PlainItem._meta.concrete_fields)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {model._meta.db_table} ({columns}) SELECT {columns} FROM {kept} ORDER BY id"
        )
    settle_tables()


@cache
def _kept_aside(topic: str, count: int) -> str:
    """The name of a table with that many fresh messages of the topic."""
    empty_tables()
    for start in range(0, count, BULK):
        numbers = range(start, min(start + BULK, count))
        enqueue_many([OutgoingMessage(topic=topic, payload=sample_payload(number)) for number in numbers])
    name = f"kept_{topic.replace('.', '_')}_{count}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} AS TABLE {OutboxMessage._meta.db_table}")
    return name
