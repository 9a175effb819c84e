"""Which database a message belongs to."""

from __future__ import annotations

from typing import Any

from django.db import connections, router
from django.utils.connection import ConnectionDoesNotExist

from .exceptions import DatabaseChoiceError, NotInTransaction
from .models import OutboxMessage


def choose_alias(using: str | None) -> str:
    """``using``, or the one alias that is inside a transaction, or what the routers say."""
    if using is not None:
        _known(using)
        return using
    inside = [
        connection.alias
        for connection in connections.all(initialized_only=True)
        if in_transaction(connection) and router.allow_migrate_model(connection.alias, OutboxMessage)
    ]
    if len(inside) > 1:
        raise DatabaseChoiceError(
            f"Transactions are open on {', '.join(sorted(inside))}: pass using= to say with which of "
            "them the message should commit."
        )
    return inside[0] if inside else router.db_for_write(OutboxMessage)


def require_transaction(alias: str) -> None:
    if not in_transaction(connections[alias]):
        raise NotInTransaction(
            f"enqueue() was called outside transaction.atomic() on {alias!r}, and REQUIRE_ATOMIC is on: "
            "the message would be sent even if your change is not saved."
        )


def in_transaction(connection: Any) -> bool:
    """Whether the caller opened a transaction; the blocks of a TestCase do not count."""
    if connection.in_atomic_block:
        return any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)
    return connection.connection is not None and not connection.get_autocommit()


def _known(alias: str) -> None:
    try:
        connections[alias]
    except ConnectionDoesNotExist:
        raise DatabaseChoiceError(
            f"There is no database {alias!r} in DATABASES; there are {', '.join(sorted(connections))}."
        ) from None
