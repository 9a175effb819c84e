"""Transactions of our own that the database ended for the sake of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import OperationalError, connections, transaction

T = TypeVar("T")

TRIES = 4
CODES = frozenset({"40P01", "40001", 1213})
"""PostgreSQL's SQLSTATEs for a deadlock and a serialisation failure, and InnoDB's deadlock."""


def retrying_deadlocks(work: Callable[[], T]) -> T:
    """Run a whole transaction again when it was chosen as the victim: nothing of it was kept."""
    for _ in range(TRIES - 1):
        try:
            return work()
        except OperationalError as exc:
            if not is_deadlock(exc):
                raise
    return work()


def is_deadlock(exc: OperationalError) -> bool:
    cause = exc.__cause__
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)  # the latter: psycopg2
    code = state or (exc.args[0] if exc.args else None)
    return code in CODES


def retrying_in_transaction(alias: str, work: Callable[[], T]) -> T:
    """All or nothing: in the caller's transaction, which an error breaks; or in one of its own, which is run
    again when it was the victim."""

    def whole() -> T:
        with transaction.atomic(using=alias, savepoint=False):
            return work()

    return whole() if connections[alias].in_atomic_block else retrying_deadlocks(whole)
