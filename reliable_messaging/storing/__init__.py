"""New rows of the outbox, each stored the quickest way that its database has.

A row comes as its values: a dict of the columns that were worked out for it. It becomes an
``OutboxMessage`` when it is stored, because a model instance costs more than all the checks of a
message. ``INSERT``, ``COPY`` and ORM write the same row; ``tests/contract/test_storing.py`` compares.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..models import OutboxMessage
from .columns import Values, complete
from .insert import insert
from .many import insert_many
from .once import DEDUPLICATED, NAMED, store_once
from .parts import by_size

__all__ = ["NAMED", "by_size", "store", "store_once"]


def store(given: Sequence[Values], alias: str) -> list[OutboxMessage]:
    """Inside a transaction: all or none. The saved rows, in the same order; of several, the times must
    be values."""
    rows = [complete(values) for values in given]
    plain = [row for row in rows if "dedup_slot" not in row]
    stored = {message.pk: message for message in _store_plain(plain, alias)}
    once = [OutboxMessage(**row) for row in rows if "dedup_slot" in row]
    # Sorted, so that two transactions with the same keys lock them in the same order.
    for message in sorted(once, key=lambda message: str(message.dedup_slot)):
        stored[message.pk] = store_once(message, alias, DEDUPLICATED)
    return [stored[row["id"]] for row in rows]


def _store_plain(rows: list[Values], alias: str) -> list[OutboxMessage]:
    if len(rows) > 1:
        return insert_many(rows, alias)
    return [insert(row, alias) for row in rows]
