"""MySQLdb: a claim locks its rows and then updates them; it has no RETURNING for an UPDATE."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from tests.benchmarks.databases.mariadb import connect

from . import TABLE, Row

LOCK = f"""
    SELECT id, topic, payload, headers, attempts, created_at, due_at FROM {TABLE}
    WHERE status = 0 AND queue = 'default' AND priority = 0 AND due_at <= UTC_TIMESTAMP(6)
    ORDER BY due_at, id LIMIT %s FOR UPDATE SKIP LOCKED
"""
CLAIM = f"""
    UPDATE {TABLE} SET status = 1, owner_token = %s, attempts = attempts + 1,
        leased_until = UTC_TIMESTAMP(6) + INTERVAL 60 SECOND, last_attempt_at = UTC_TIMESTAMP(6)
    WHERE id IN %s
"""
ACKNOWLEDGE = f"""
    UPDATE {TABLE} SET status = 2, owner_token = NULL, leased_until = NULL, finished_at = UTC_TIMESTAMP(6)
    WHERE id IN %s AND status = 1 AND owner_token = %s
"""


class Queue:
    def __init__(self, name: str) -> None:
        self._session = connect(name)
        self._cursor = self._session.cursor()
        self._cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self._token = ""

    def claim(self, batch: int) -> Sequence[Row]:
        self._token = str(uuid4())
        self._session.begin()
        self._cursor.execute(LOCK, [batch])
        rows: Sequence[Row] = self._cursor.fetchall()
        if rows:
            self._cursor.execute(CLAIM, [self._token, [row[0] for row in rows]])
        self._session.commit()
        return rows

    def acknowledge(self, rows: Sequence[Row]) -> None:
        self._cursor.execute(ACKNOWLEDGE, [[row[0] for row in rows], self._token])
