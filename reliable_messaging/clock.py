"""Two clocks behind seams: the database's wall clock, and this process's monotonic clock.

Every stored time comes from the database, so workers whose clocks disagree still agree.
Every duration inside a process is measured on the monotonic clock, which never jumps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

from django.db import connections
from django.db.models import DateTimeField, Func


class Now(Func):
    """The database's time, in UTC, constant within one statement.

    Not django's ``Now()``: on MariaDB and MySQL that is the session's local time, while
    Django stores UTC there, so a server that is not on UTC would run messages hours early.
    """

    template = "CURRENT_TIMESTAMP"
    output_field = DateTimeField()

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # STABLE, so an index condition can use it; clock_timestamp() could not.
        return self.as_sql(compiler, connection, template="STATEMENT_TIMESTAMP()", **extra)

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="UTC_TIMESTAMP(6)", **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # Milliseconds, written with six digits: SQLite compares texts, and Django's date arithmetic
        # answers with six. With three, a moment would come before itself plus nothing.
        template = "STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f000', 'NOW')"
        return self.as_sql(compiler, connection, template=template, **extra)


_travelled = timedelta(0)


def now() -> Any:
    """The database's present time, as an expression."""
    return Now() + _travelled if _travelled else Now()


def travelled() -> timedelta:
    """How far a test has moved the database's clock."""
    return _travelled


def read(using: str) -> datetime:
    """The database's present time, as a value."""
    connection = connections[using]
    now = Now()
    compile_for: Any = getattr(now, f"as_{connection.vendor}", now.as_sql)
    sql, params = compile_for(None, connection)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {sql}", params)
        value = cursor.fetchone()[0]
    # SQLite answers with a text, MariaDB with a naive time; both mean UTC.
    return as_utc(datetime.fromisoformat(value) if isinstance(value, str) else value) + _travelled


def as_utc(moment: datetime) -> datetime:
    """A time as a driver gives it: naive ones mean UTC. Two of the same zone are compared by its wall clock,
    and on the night when that is set back an hour, the earlier one may seem to be the later."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=timezone.utc)
    return moment if moment.tzinfo is timezone.utc else moment.astimezone(timezone.utc)


def monotonic() -> float:
    """Seconds on this process's monotonic clock."""
    return time.monotonic()


def utcnow() -> datetime:
    """This process's wall clock. Only for what may be wrong by an hour: the database decides."""
    return datetime.now(timezone.utc) + _travelled


@contextmanager
def travel(duration: float | timedelta) -> Iterator[None]:
    """For tests: inside the block, the database seems to be that much later (in seconds, or a timedelta).

    Only what this process asks of this module moves; nothing is slept.
    """
    global _travelled
    before = _travelled
    _travelled += duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
    try:
        yield
    finally:
        _travelled = before
