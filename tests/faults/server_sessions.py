"""The sessions that others have on a database: to count them, and to end them."""

from __future__ import annotations

from django.db import OperationalError, connections

from .patience import patiently

LIST = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
    "mysql": "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
}
END = {"postgresql": "SELECT pg_terminate_backend({})", "mysql": "KILL {}"}
NO_SUCH_THREAD = 1094


def other_sessions(using: str) -> list[int]:
    """All but the one that asks."""
    return patiently(using, lambda: [row[0] for row in _execute(using, LIST[connections[using].vendor])])


def end_other_sessions(using: str) -> int:
    """As an administrator would, one by one; returns how many there were."""
    ended = other_sessions(using)
    for session in ended:
        try:
            _execute(using, END[connections[using].vendor].format(session))
        except OperationalError as exc:
            if exc.args[0] != NO_SUCH_THREAD:  # it has gone by itself
                raise
    return len(ended)


def _execute(using: str, sql: str) -> list[tuple[int, ...]]:
    with connections[using].cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())
