from __future__ import annotations

from typing import Any

import psycopg
from django.db import connections
from psycopg import sql

from tests.benchmarks.measures import NAMES as MEASURES

from .base import Database, tables

MAINTENANCE = "postgres"
"""A database that is always there: to make ours from, and to watch ours from outside."""
SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "shared_buffers",
    "max_wal_size",
    "autovacuum",
)
COUNTERS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"


def connect(name: str, **options: Any) -> psycopg.Connection[Any]:
    """A plain connection in autocommit, to the database of this name."""
    given = connections["default"].settings_dict
    parameters = {
        "host": given["HOST"],
        "port": given["PORT"] or None,
        "user": given["USER"],
        "password": given["PASSWORD"] or None,
        "dbname": name,
    }
    return psycopg.connect(autocommit=True, connect_timeout=10, **parameters, **options)


class Postgres(Database):
    title = "PostgreSQL"
    has_fast_path = True
    notifies = True
    copies = True
    measures = MEASURES
    has_targets = True
    not_waiting_for_disk = ("SET synchronous_commit = off",)
    many = 1_000_000

    def create(self, alias: str) -> None:
        self._outside("CREATE DATABASE {}", alias)

    def drop(self, alias: str) -> None:
        # FORCE: a process that had to be killed may not be noticed by the server yet.
        self._outside("DROP DATABASE IF EXISTS {} WITH (FORCE)", alias)

    def empty(self, alias: str = "default") -> None:
        self.execute(alias, f"TRUNCATE {', '.join(tables(alias))}")

    def settle(self, alias: str = "default") -> None:
        self.execute(alias, *(f"VACUUM (ANALYZE) {table}" for table in tables(alias)))

    def numbers(self, first: int, last: int) -> str:
        return f"generate_series({first}, {last}) AS numbers(n)"

    def numbered_id(self, prefix: str) -> str:
        return f"('{prefix}' || lpad(to_hex(n), 12, '0'))::uuid"

    def transactions(self) -> float | None:
        with connect(MAINTENANCE) as outside:
            row = outside.execute(COUNTERS, [self.name_of("default")]).fetchone()
        assert row is not None
        return float(row[0])

    def facts(self) -> dict[str, Any]:
        with connect(MAINTENANCE) as outside:
            found = outside.execute(
                "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)", [list(SETTINGS)]
            )
            return dict(found.fetchall())

    def _outside(self, statement: str, alias: str) -> None:
        with connect(MAINTENANCE) as outside:
            outside.execute(sql.SQL(statement).format(sql.Identifier(self.name_of(alias))))


DATABASE = Postgres()
