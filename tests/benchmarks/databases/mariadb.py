from __future__ import annotations

from typing import Any

import MySQLdb
from django.db import connections

from .base import Database, tables

SETTINGS = (
    "version",
    "innodb_flush_log_at_trx_commit",
    "sync_binlog",
    "innodb_buffer_pool_size",
)


def connect(name: str | None = None) -> MySQLdb.Connection:
    """A plain connection in autocommit, to the database of this name, or to none."""
    given = connections["default"].settings_dict
    named = {} if name is None else {"database": name}
    return MySQLdb.connect(
        host=given["HOST"],
        port=int(given["PORT"]),
        user=given["USER"],
        password=given["PASSWORD"],
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=10,
        **named,
    )


class MariaDB(Database):
    title = "MariaDB"
    measures = (
        *("drain", "atomic", "scaling", "enqueue", "latency", "late", "idle", "history"),
        *("timers", "lateness", "leases"),
    )

    def create(self, alias: str) -> None:
        self._outside(f"CREATE DATABASE `{self.name_of(alias)}` CHARACTER SET utf8mb4")

    def drop(self, alias: str) -> None:
        connections[alias].close()
        self._outside(f"DROP DATABASE IF EXISTS `{self.name_of(alias)}`")

    def empty(self, alias: str = "default") -> None:
        self.execute(alias, *(f"TRUNCATE {table}" for table in tables(alias)))

    def settle(self, alias: str = "default") -> None:
        with connections[alias].cursor() as cursor:
            cursor.execute(f"ANALYZE TABLE {', '.join(tables(alias))}")
            cursor.fetchall()

    def numbers(self, first: int, last: int) -> str:
        return f"(SELECT seq AS n FROM seq_{first}_to_{last}) AS numbers"

    def numbered_id(self, prefix: str) -> str:
        return f"CONCAT('{prefix}', LPAD(HEX(n), 12, '0'))"

    def facts(self) -> dict[str, Any]:
        columns = ", ".join(f"@@{name}" for name in SETTINGS)
        with connections["default"].cursor() as cursor:
            cursor.execute(f"SELECT {columns}")
            found = dict(zip(SETTINGS, cursor.fetchone(), strict=True))
        return {"server_version": found.pop("version"), **found}

    def _outside(self, statement: str) -> None:
        session = connect()
        try:
            session.cursor().execute(statement)
        finally:
            session.close()


DATABASE = MariaDB()
