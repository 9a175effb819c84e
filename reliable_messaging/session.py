"""Connections of a worker: outside Django's pool, and dropped by both sides when the other is gone.

A host that vanishes says no goodbye. Until the server notices, its session lives, and so do the row
locks in it; so a worker's sessions are told to notice before its leases end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from .conf import get_settings
from .registry import registry
from .workqueue.kept_plans import keep_plans
from .workqueue.own_session import set_in_own_session

LONGEST_CONNECT = 10
SHORTEST_CONNECT = 2
"""libpq knows nothing shorter."""
SHORTEST_READ = 5
MOST_MILLISECONDS = 2**31 - 1
"""Some 24 days: PostgreSQL knows nothing longer."""
MOST_SECONDS = 365 * 24 * 3600
"""And MariaDB no longer idle transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """How soon each side gives up on the other."""

    lease: timedelta
    idle_in_transaction: timedelta
    """How long a transaction may do nothing: on handler threads as long as a handler may take."""
    lock: timedelta | None = None
    """How long to wait for somebody's lock, on a row or on the table; None: as the server has it."""
    read: timedelta | None = None
    """How long an answer may take, where the driver can tell; None: as long as it takes."""
    keeps_plans: bool = False
    """Nothing but statements of the queue's own is run there: the server need not plan them each time."""

    def options(self, vendor: str) -> dict[str, Any]:
        """What the driver is told when it connects. What the project's settings say goes first."""
        if vendor == "postgresql":
            return {"connect_timeout": self._connect_seconds, **self._probes("keepalives")}
        if vendor == "mysql":
            options = {"connect_timeout": self._connect_seconds}
            if self.read is not None:
                seconds = max(SHORTEST_READ, int(self.read.total_seconds()))
                options |= {"read_timeout": seconds, "write_timeout": seconds}
            return options
        return {}

    def apply(self, connection: Any) -> None:
        """What the server is told, each time a session begins. Where the project, the role or the
        database has a limit of its own, that one stays."""
        if connection.vendor == "postgresql":
            set_in_own_session(connection, self._for_postgres())
            if self.keeps_plans:
                keep_plans(connection)
        elif connection.vendor == "mysql":
            values = ", ".join(f"{k} = {v}" for k, v in self._for_mysql(connection).items())
            if values:
                _execute(connection, f"SET SESSION {values}")

    def _for_postgres(self) -> dict[str, str]:
        limits = {"idle_in_transaction_session_timeout": self.idle_in_transaction}
        if self.lock is not None:
            limits["lock_timeout"] = self.lock
        return {
            **{name: f"'{value}'" for name, value in self._probes("tcp_keepalives").items()},
            "idle_session_timeout": "'0'",  # a listener hears nothing for hours
            **{
                name: f"coalesce(nullif(current_setting('{name}'), '0'), '{_milliseconds(limit)}')"
                for name, limit in limits.items()
            },
        }

    def _for_mysql(self, connection: Any) -> dict[str, str]:
        values: dict[str, str] = {}
        if connection.mysql_is_mariadb:
            name, seconds = "idle_transaction_timeout", int(self.idle_in_transaction.total_seconds())
            values[name] = f"coalesce(nullif(@@{name}, 0), {max(1, min(seconds, MOST_SECONDS))})"
        if self.lock is not None:
            seconds = max(1, int(self.lock.total_seconds()))
            for name in ("lock_wait_timeout", "innodb_lock_wait_timeout"):
                values[name] = f"least(@@{name}, {seconds})"
        return values

    @property
    def _connect_seconds(self) -> int:
        """An error well within the lease: silence for longer is taken for a dead wire."""
        return max(SHORTEST_CONNECT, min(LONGEST_CONNECT, int(self.lease.total_seconds() / 2)))

    def _probes(self, prefix: str) -> dict[str, int]:
        """TCP's probes of a silent connection, which add up to less than the lease."""
        seconds = self.lease.total_seconds()
        return {
            f"{prefix}_idle": max(1, int(seconds / 3)),
            f"{prefix}_interval": max(1, int(seconds / 10)),
            f"{prefix}_count": 3,
            "tcp_user_timeout": max(1000, int(seconds * 800)),  # milliseconds
        }


def handler_limits(lease: timedelta) -> SessionLimits:
    """For handler threads: a handler may keep its transaction waiting for as long as it may take."""
    longest = max([get_settings().HANDLER_TIMEOUT, *(h.timeout for h in registry if h.timeout)])
    return SessionLimits(lease=lease, idle_in_transaction=max(longest, lease))


@contextmanager
def private_connection(alias: str, limits: SessionLimits) -> Iterator[None]:
    """Give this thread a connection of that kind for the length of the block. It is outside the pool:
    busy handlers must not starve the heartbeat."""
    shared = connections[alias]
    ours = limits.options(shared.vendor)
    if not ours:  # SQLite: a file has no other side
        yield
        return
    private: Any = shared.copy()
    private.settings_dict["OPTIONS"].pop("pool", None)
    private.settings_dict["OPTIONS"] = {**ours, **private.settings_dict["OPTIONS"]}
    private.reliable_messaging_limits = limits
    shared.close()
    connections[alias] = private
    try:
        yield
    finally:
        discard(private)
        connections[alias] = shared


def discard(connection: Any) -> None:
    """Close a connection in whatever state it is."""
    connection.in_atomic_block = False
    connection.atomic_blocks = []
    connection.savepoint_ids = []
    connection.run_on_commit = []
    connection.needs_rollback = False
    connection.closed_in_transaction = False
    try:
        if connection.settings_dict["OPTIONS"].get("pool"):
            connection.connection.close()  # or its pool would hand it to someone else as it is
        connection.close()
    except Exception:
        connection.connection = None
    connection.autocommit = False
    connection.connection = None


@receiver(connection_created, dispatch_uid="reliable_messaging.session")
def _limit(*, connection: Any, **_: Any) -> None:
    limits: SessionLimits | None = getattr(connection, "reliable_messaging_limits", None)
    if limits is None:
        return
    try:
        limits.apply(connection)
    except BaseException:
        discard(connection)  # or it would be used as it is: without limits, or dead
        raise


def _milliseconds(duration: timedelta) -> int:
    return min(int(duration.total_seconds() * 1000), MOST_MILLISECONDS)


def _execute(connection: Any, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)
