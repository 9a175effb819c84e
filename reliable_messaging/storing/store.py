from __future__ import annotations

from collections.abc import Sequence

from django.db import connections

from ..models import OutboxMessage
from .columns import Values, complete, saved
from .copy import can_copy, copy
from .insert import insert
from .once import store_once


def store(given: Sequence[Values], alias: str) -> list[OutboxMessage]:
    """Inside a transaction: all or none. The saved rows, in the same order; of several, the times must
    be values."""
    rows = [complete(values) for values in given]
    plain = [row for row in rows if "dedup_slot" not in row]
    stored = {message.pk: message for message in _store_plain(plain, alias)}
    once = [OutboxMessage(**row) for row in rows if "dedup_slot" in row]
    # Sorted, so that two transactions with the same keys lock them in the same order.
    for message in sorted(once, key=lambda message: str(message.dedup_slot)):
        stored[message.pk] = store_once(message, alias)
    return [stored[row["id"]] for row in rows]


def _store_plain(rows: list[Values], alias: str) -> list[OutboxMessage]:
    if not rows:
        return []
    if len(rows) == 1:
        return [insert(rows[0], alias)]
    messages = [saved(row, alias) for row in rows]
    with connections[alias].cursor() as cursor:
        if can_copy(cursor):
            copy(rows, alias, cursor)
            return messages
    return OutboxMessage._base_manager.using(alias).bulk_create(messages)
