"""The database sessions of this thread, and what handlers did to them.

Django knows which transactions it opened itself. What a handler did by SQL, or past Django with the
driver's own connection, is kept and asked for here.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from django.db.backends.signals import connection_created

IDLE = 0
IN_TRANSACTION = (2, 3)  # in one, and in one that failed
UNKNOWN = 4
"""libpq's words for the state of a session."""


@dataclass(slots=True)
class Session:
    changed: bool = False
    """It is not as a new one would be: nobody else may use it."""
    changed_locally: bool = False
    """The same, until its transaction ends."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.sessions: WeakKeyDictionary[Any, Session] = WeakKeyDictionary()
        self.watch: Any = None


thread = _Thread()


def session_of(connection: Any) -> Session:
    session = thread.sessions.get(connection)
    if session is None:
        session = thread.sessions[connection] = Session()
    return session


def open_connections() -> list[Any]:
    """Every connection that this thread has opened. Not by their aliases: an alias may be gone from
    the settings, and a handler may have copied a connection."""
    known = [reference() for reference in thread.sessions.keyrefs()]
    return [found for found in known if found is not None and found.connection is not None]


def has_open_transaction(connection: Any) -> bool:
    """Whether the database holds something of this session that is not committed."""
    status = _status(connection)
    return status in IN_TRANSACTION if status is not None else _answers_in_transaction(connection)


def is_idle(connection: Any) -> bool:
    """Whether the session is alive, in no transaction, and not in the middle of a statement."""
    status = _status(connection)
    return status == IDLE if status is not None else not _answers_in_transaction(connection)


def is_alive(connection: Any) -> bool:
    """Whether the server still answers; a transaction that failed is no reason to say no."""
    status = _status(connection)
    if status is None or hasattr(connection.connection, "in_transaction"):
        return bool(connection.is_usable())
    return status != UNKNOWN


def _status(connection: Any) -> int | None:
    """As libpq counts: no round trip. None when the driver does not know."""
    driver = connection.connection
    try:
        if driver is None or connection.closed_in_transaction:
            return UNKNOWN
        if hasattr(driver, "pgconn"):
            return int(driver.pgconn.transaction_status)
        if hasattr(driver, "get_transaction_status"):  # psycopg2
            return int(driver.get_transaction_status())
        if hasattr(driver, "in_transaction"):
            return IN_TRANSACTION[0] if driver.in_transaction else IDLE
    except Exception:
        return UNKNOWN  # the driver's own connection was closed
    return None


def _answers_in_transaction(connection: Any) -> bool:
    if not _asked_for(connection):
        return False
    try:
        with connection.connection.cursor() as cursor:
            cursor.execute("SELECT @@in_transaction")
            return bool(cursor.fetchone()[0])
    except Exception:
        return True  # MySQL has no such variable: rather too often than once too seldom


def _asked_for(connection: Any) -> bool:
    """Whether it is worth a look at the server: a round trip after each message would be dear."""
    return bool(
        connection.in_atomic_block
        or connection.autocommit != connection.settings_dict["AUTOCOMMIT"]
        or session_of(connection).changed
    )


def _opened(connection: Any, **_: Any) -> None:
    thread.sessions[connection] = Session()
    if thread.watch is not None:
        thread.watch.look_at(connection)


connection_created.connect(_opened, dispatch_uid="reliable_messaging.sessions")
