"""PostgreSQL: a statement that is planned once in a session, and not at each execution.

To plan an exchange takes about as long as to execute it. But a kept plan knows neither how many rows there
are nor how many will be asked for: one that was made for an empty table would read all of a full one. So
the session is told to go by indexes alone. Then there is one plan, whatever the table is like.

Only in sessions that the server keeps for us and in which nothing but our own statements are run: a
worker's claiming thread has one. Behind PgBouncer a statement may be prepared in one and executed in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import NotSupportedError

SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
    # The plan looks dear, since it is made for any number of rows: it would be compiled at each execution.
    "jit": "off",
}

ONLY_WHEN_ASKED = 2**31
"""Executions, after which psycopg prepares a statement by itself."""

_ATTRIBUTE = "reliable_messaging_keeps_plans"


def keep_plans(connection: Any) -> None:
    """In its present session, which has the settings. Only psycopg 3 can prepare."""
    session = connection.connection
    if hasattr(session, "pgconn"):
        if session.prepare_threshold is None:  # Django's way to say "never"
            session.prepare_threshold = ONLY_WHEN_ASKED
        setattr(connection, _ATTRIBUTE, session)


def keeps_plans(connection: Any) -> bool:
    session = getattr(connection, _ATTRIBUTE, None)
    return session is not None and session is connection.connection and not connection.in_atomic_block


def execute(connection: Any, sql: str, parameters: Sequence[Any]) -> list[Any]:
    """In autocommit, past Django's cursors: those put the parameters into the text."""
    try:
        return _execute(connection, sql, parameters)
    except NotSupportedError:
        # A migration has changed a column since: "cached plan must not change result type".
        _execute(connection, "DEALLOCATE ALL")
        return _execute(connection, sql, parameters)


def _execute(connection: Any, sql: str, parameters: Sequence[Any] | None = None) -> list[Any]:
    from psycopg import Cursor

    with connection.wrap_database_errors, Cursor(connection.connection) as cursor:
        cursor.execute(sql, parameters, prepare=parameters is not None)
        return cursor.fetchall() if cursor.description else []
