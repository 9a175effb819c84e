"""psycopg: one statement claims, one acknowledges, and each commits by itself."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from tests.benchmarks.databases.postgres import connect

from . import CHANNEL, TABLE, Row

CLAIM = f"""
    UPDATE {TABLE} SET status = 1, owner_token = %(token)s, attempts = attempts + 1,
        leased_until = statement_timestamp() + interval '60 seconds', last_attempt_at = statement_timestamp()
    WHERE id IN (
        SELECT id FROM {TABLE}
        WHERE status = 0 AND queue = 'default' AND priority = 0 AND due_at <= statement_timestamp()
        ORDER BY due_at, id LIMIT %(batch)s FOR UPDATE SKIP LOCKED
    )
    RETURNING id, topic, payload, headers, attempts, created_at, due_at
"""
ACKNOWLEDGE = f"""
    UPDATE {TABLE} SET status = 2, owner_token = NULL, leased_until = NULL,
        finished_at = statement_timestamp()
    WHERE id = ANY(%(ids)s) AND status = 1 AND owner_token = %(token)s
"""


class Queue:
    def __init__(self, name: str) -> None:
        self._session = connect(name)
        self._token = uuid4()

    def claim(self, batch: int) -> Sequence[Row]:
        self._token = uuid4()
        return self._session.execute(CLAIM, {"token": self._token, "batch": batch}).fetchall()

    def acknowledge(self, rows: Sequence[Row]) -> None:
        self._session.execute(ACKNOWLEDGE, {"ids": [row[0] for row in rows], "token": self._token})

    def listen(self) -> None:
        self._session.execute(f"LISTEN {CHANNEL}")

    def wait(self, seconds: float) -> None:
        for _ in self._session.notifies(timeout=seconds, stop_after=1):
            pass
