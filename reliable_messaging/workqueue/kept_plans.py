"""PostgreSQL: a statement that is planned once in a session, and not at each execution.

To plan an exchange takes about as long as to execute it. But a kept plan knows neither how many rows there
are nor how many will be asked for: one that was made for an empty table would read all of a full one, until
somebody analyses it. So the session is told to go by indexes alone, and the statement is written so that each
of them is asked for certain ids, or for the first entries of a lane. Then there is one plan, whatever the
table is like.

Only in sessions that the server keeps for us and in which nothing but our own statements are run: a
worker's claiming thread has one. Behind PgBouncer a statement may be prepared in one and executed in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import DatabaseError

from .own_session import set_in_own_session

SETTINGS = {
    "plan_cache_mode": "'force_generic_plan'",
    "enable_seqscan": "'off'",
    "enable_sort": "'off'",
    # A kept plan takes each list for ten long, and would compare each of a batch with each other of it.
    "enable_nestloop": "'off'",
    # It looks dear, since it is made for any number of rows: it would be compiled at each execution.
    "jit": "'off'",
}

REFUSALS = {"0A000", "26000", "42P05"}
"""A migration has changed a column since, and the plan would answer with another type; or a pooler has handed
us a session in which somebody else has prepared. The statement itself is as good as ever."""

ONLY_WHEN_ASKED = 2**31
"""Executions, after which psycopg prepares a statement by itself."""

_ATTRIBUTE = "reliable_messaging_keeps_plans"


def keep_plans(connection: Any) -> None:
    """In the present session of the connection, if it is PostgreSQL's own. Only psycopg 3 can prepare."""
    session = connection.connection
    if connection.settings_dict["OPTIONS"].get("server_side_binding"):
        # Then every statement of Django's has parameters, and one plan for all their values: it would not
        # know that a partial index serves the one that is meant.
        return
    if hasattr(session, "pgconn") and set_in_own_session(connection, SETTINGS):
        if session.prepare_threshold is None:  # Django's way to say "never"
            session.prepare_threshold = ONLY_WHEN_ASKED
        setattr(connection, _ATTRIBUTE, session)


def execute(connection: Any, sql: str, parameters: Sequence[Any]) -> list[Any]:
    """Whichever way the session allows. A kept plan only in autocommit: there a refusal has done no harm."""
    session = getattr(connection, _ATTRIBUTE, None)
    if session is not None and session is connection.connection and not connection.in_atomic_block:
        try:
            return _execute_prepared(connection, sql, parameters)
        except DatabaseError as exc:
            if getattr(exc.__cause__, "sqlstate", None) not in REFUSALS:
                raise
            setattr(connection, _ATTRIBUTE, None)
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


def _execute_prepared(connection: Any, sql: str, parameters: Sequence[Any]) -> list[Any]:
    """Past Django's cursors: those put the parameters into the text."""
    from psycopg import Cursor

    with connection.wrap_database_errors, Cursor(connection.connection) as cursor:
        cursor.execute(sql, parameters, prepare=True)
        return cursor.fetchall()
