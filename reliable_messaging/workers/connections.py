"""Database connections of a worker's threads."""

from __future__ import annotations

from typing import Any

from django.db import connections

from ..dispatch.sessions import forget_copies, is_idle, open_connections, session_of
from ..logs import logger
from ..session import discard


def clean_up_connections() -> None:
    """After each message: nothing of it may reach the next."""
    for connection in open_connections():
        connection.queries_log.clear()  # under DEBUG Django keeps every query
        _close_if_spoilt(connection)
    forget_copies()


def clean_up_others(own: Any) -> None:
    """The same, while the transaction on ``own`` goes on: what the next message of the chunk writes
    elsewhere must not end up in a transaction that this one has left open."""
    for connection in open_connections():
        if connection is not own:
            _close_if_spoilt(connection)


def is_shared(connection: Any) -> bool:
    """Whether a thread of the handler's may still use it."""
    # allow_thread_sharing takes a lock, at every message.
    return bool(getattr(connection, "_thread_sharing_count", 0))


def is_gone(connection: Any) -> bool:
    """Whether its session is over. Outside of a transaction Django may not have noticed."""
    return connection.connection is None or not connection.is_usable()


def _close_if_spoilt(connection: Any) -> None:
    """Close what a handler left with an open transaction, or with autocommit off: the next message
    would run inside it. What it set in the session: the next would run with it. And what broke: the
    next would fail for it."""
    if connection.errors_occurred and not connection.in_atomic_block:
        connection.errors_occurred = False
        if not connection.is_usable():
            discard(connection)
            return
    if _is_dirty(connection):
        logger.warning("A handler left a transaction open on %r; the connection is closed.", connection.alias)
        discard(connection)
    elif session_of(connection).changed or is_shared(connection):
        while connection.allow_thread_sharing:
            connection.dec_thread_sharing()
        logger.debug("A handler changed the session on %r; the connection is closed.", connection.alias)
        discard(connection)


def _is_dirty(connection: Any) -> bool:
    if connection.in_atomic_block or connection.needs_rollback:
        return True
    if connection.autocommit != connection.settings_dict["AUTOCOMMIT"]:
        return True
    return bool(connection.autocommit and not is_idle(connection))


def close_thread_connections() -> None:
    for connection in connections.all(initialized_only=True):
        discard(connection)
