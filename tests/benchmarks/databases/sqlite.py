from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from django.db import connections

from .base import Database, tables


class SQLite(Database):
    title = "SQLite"
    plain_lot = 10

    def create(self, alias: str) -> None:
        pass  # the first connection makes the file

    def drop(self, alias: str) -> None:
        connections[alias].close()
        for ending in ("", "-wal", "-shm"):
            Path(f"{self.name_of(alias)}{ending}").unlink(missing_ok=True)

    def empty(self, alias: str = "default") -> None:
        self.execute(alias, *(f"DELETE FROM {table}" for table in tables(alias)))

    def settle(self, alias: str = "default") -> None:
        self.execute(alias, "ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)")

    def numbers(self, first: int, last: int) -> str:
        return (
            f"(WITH RECURSIVE counted(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM counted "
            f"WHERE n < {last}) SELECT n FROM counted) AS numbers"
        )

    def numbered_id(self, prefix: str) -> str:
        # %% because the statement goes through Django's own placeholders.
        return f"'{prefix.replace('-', '')}' || printf('%%012x', n)"

    def facts(self) -> dict[str, Any]:
        options = connections["default"].settings_dict["OPTIONS"]
        return {"server_version": sqlite3.sqlite_version, "session": options["init_command"]}


DATABASE = SQLite()
