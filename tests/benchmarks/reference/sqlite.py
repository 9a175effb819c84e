"""sqlite3: one statement claims, one acknowledges, and each commits by itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from uuid import uuid4

from django.db import connections

from . import TABLE, Row

NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
CLAIM = f"""
    UPDATE {TABLE} SET status = 1, owner_token = ?, attempts = attempts + 1,
        leased_until = strftime('%Y-%m-%d %H:%M:%f', 'now', '60 seconds'), last_attempt_at = {NOW}
    WHERE id IN (
        SELECT id FROM {TABLE}
        WHERE status = 0 AND queue = 'default' AND priority = 0 AND due_at <= {NOW}
        ORDER BY due_at, id LIMIT ?
    )
    RETURNING id, topic, payload, headers, attempts, created_at, due_at
"""
ACKNOWLEDGE = f"""
    UPDATE {TABLE} SET status = 2, owner_token = NULL, leased_until = NULL, finished_at = {NOW}
    WHERE id = ? AND status = 1 AND owner_token = ?
"""


class Queue:
    def __init__(self, name: str) -> None:
        self._session = sqlite3.connect(name, timeout=30, isolation_level=None)
        self._session.executescript(connections["default"].settings_dict["OPTIONS"]["init_command"])
        self._token = ""

    def claim(self, batch: int) -> Sequence[Row]:
        self._token = uuid4().hex
        return self._session.execute(CLAIM, [self._token, batch]).fetchall()

    def acknowledge(self, rows: Sequence[Row]) -> None:
        self._session.execute("BEGIN IMMEDIATE")
        self._session.executemany(ACKNOWLEDGE, [(row[0], self._token) for row in rows])
        self._session.execute("COMMIT")
