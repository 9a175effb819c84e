"""What an error of the database says about whatever met it."""

from __future__ import annotations

from django.db import DatabaseError, InterfaceError, OperationalError

NOT_NOW = {"25006", "25P03", "25P04"}
"""PostgreSQL is read-only, after a failover or on a full disk, or has ended a slow transaction. The driver
calls these internal errors."""
NOT_THIS_VALUE = {1300, 1366, 3988}
"""MariaDB and MySQL cannot hold a text in this character set, and never will. The driver calls these
operational errors."""


def is_passing(exc: BaseException) -> bool:
    """Whether the same may work later: the database is not to be had, or does not write for now, or
    somebody is in the way."""
    if isinstance(exc, (OperationalError, InterfaceError)):
        return not (exc.args and exc.args[0] in NOT_THIS_VALUE)
    cause = exc.__cause__
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return isinstance(exc, DatabaseError) and state in NOT_NOW
