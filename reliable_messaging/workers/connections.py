"""Database connections of a worker's threads."""

from __future__ import annotations

from typing import Any

from django.db import connections, reset_queries

from ..logs import logger


def clean_up_connections() -> None:
    """After each message: nothing of it may reach the next."""
    reset_queries()  # under DEBUG Django keeps every query
    _close_dirty()


def _close_dirty() -> None:
    """Close what a handler left with an open transaction, or with autocommit off: the next
    message would run inside it. And what broke: the next message would fail for it."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        if connection.errors_occurred and not connection.in_atomic_block:
            connection.errors_occurred = False
            if not connection.is_usable():
                discard(connection)
                continue
        if _is_dirty(connection):
            logger.warning(
                "A handler left a transaction open on %r; the connection is closed.", connection.alias
            )
            discard(connection)


def discard(connection: Any) -> None:
    """Close a connection in whatever state it is."""
    connection.in_atomic_block = False
    connection.atomic_blocks = []
    connection.savepoint_ids = []
    connection.run_on_commit = []
    connection.needs_rollback = False
    connection.closed_in_transaction = False
    try:
        connection.close()
    except Exception:
        connection.connection = None
    connection.autocommit = False
    connection.connection = None


def _is_dirty(connection: Any) -> bool:
    if connection.in_atomic_block or connection.needs_rollback:
        return True
    return bool(connection.autocommit != connection.settings_dict["AUTOCOMMIT"])


def close_thread_connections() -> None:
    for connection in connections.all(initialized_only=True):
        discard(connection)
