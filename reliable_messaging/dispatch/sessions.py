"""The database sessions of this thread, and what handlers did to them.

Django knows which transactions it opened itself. What a handler did by SQL, or past Django with the
driver's own connection, is kept and asked for here.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created
from django.utils.connection import ConnectionDoesNotExist

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
        self.connections: list[Any] = []
        """Those that were opened here. Not by their aliases: an alias may be gone from the settings,
        and a handler may have copied a connection."""
        self.kept = 0
        """How many of them there were after those of the last message had gone."""
        self.watch: Any = None
        self.is_forked = False
        """This is the copy of a thread, in a child process that a handler made."""


thread = _Thread()
_ATTRIBUTE = "reliable_messaging_session"


def session_of(connection: Any) -> Session:
    # An attribute, because this is asked for at every message, and a weak dictionary is slow.
    found: Session | None = getattr(connection, _ATTRIBUTE, None)
    return begin_session(connection) if found is None else found


def begin_session(connection: Any) -> Session:
    """The connection has a new session, or is seen for the first time."""
    if connection not in thread.connections:
        thread.connections.append(connection)
    session = Session()
    setattr(connection, _ATTRIBUTE, session)
    return session


def open_connections() -> list[Any]:
    return [connection for connection in thread.connections if connection.connection is not None]


def forget_copies() -> None:
    """Not to keep alive what a handler has copied. Used again, it is opened again, and known again."""
    if len(thread.connections) != thread.kept:  # at every message; the next line costs a tenth of one
        thread.connections[:] = [c for c in thread.connections if _of_alias(c.alias) is c]
        thread.kept = len(thread.connections)


def _of_alias(alias: str) -> Any:
    try:
        return connections[alias]
    except ConnectionDoesNotExist:
        return None


def has_open_transaction(connection: Any) -> bool:
    """Whether the database holds something of this session that is not committed."""
    status = _status(connection)
    return status in IN_TRANSACTION if status is not None else _answers_in_transaction(connection)


def is_idle(connection: Any) -> bool:
    """Whether the session is alive, in no transaction, and not in the middle of a statement."""
    status = _status(connection)
    return status == IDLE if status is not None else not _answers_in_transaction(connection)


def is_in_transaction(connection: Any) -> bool:
    """Whether a driver that knows it, and can take several statements at once, says that the session is in
    a transaction that has not failed."""
    driver = connection.connection
    return hasattr(driver, "pgconn") and _status(connection) == IN_TRANSACTION[0]


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
    begin_session(connection)
    if thread.watch is not None:
        thread.watch.look_at(connection)


connection_created.connect(_opened, dispatch_uid="reliable_messaging.sessions")
