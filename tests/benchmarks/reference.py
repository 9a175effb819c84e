"""The plain loops that the worker is compared with: psycopg, one connection, no framework.

``drain``: claims a batch in one statement, calls a function for each row, acknowledges the batch
in a second statement, and starts again until it is stopped. Both statements commit by themselves.
``listen``: the same, and when nothing is left it sleeps on LISTEN until a NOTIFY comes.

Run as a process of its own: ``python -m tests.benchmarks.reference drain --batch 50``.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import django
import psycopg

from .stamps import stamp

TABLE = "benchapp_plainitem"
CHANNEL = "bench"
IDLE_SECONDS = 0.1
SAFETY_SECONDS = 1.0
"""A LISTEN loop still looks by itself now and then."""

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
ACK = f"""
    UPDATE {TABLE} SET status = 2, owner_token = NULL, leased_until = NULL,
        finished_at = statement_timestamp()
    WHERE id = ANY(%(ids)s) AND status = 1 AND owner_token = %(token)s
"""

Row = tuple[Any, ...]


def one_batch(session: psycopg.Connection[Any], batch: int, handle: Callable[[Row], None]) -> int:
    """Claim, handle and acknowledge one batch; returns how many it had."""
    token = uuid4()
    rows = session.execute(CLAIM, {"token": token, "batch": batch}).fetchall()
    for row in rows:
        handle(row)
    if rows:
        session.execute(ACK, {"ids": [row[0] for row in rows], "token": token})
    return len(rows)


def drain(session: psycopg.Connection[Any], batch: int, until: float) -> None:
    while time.monotonic() < until:
        if not one_batch(session, batch, _do_nothing):
            time.sleep(IDLE_SECONDS)


def listen(session: psycopg.Connection[Any], batch: int, until: float) -> None:
    session.execute(f"LISTEN {CHANNEL}")
    while time.monotonic() < until:
        if not one_batch(session, batch, _stamp_the_start):
            for _ in session.notifies(timeout=SAFETY_SECONDS, stop_after=1):
                pass


def _do_nothing(row: Row) -> None:
    pass


def _stamp_the_start(row: Row) -> None:
    stamp(row[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loop", choices=["drain", "listen"])
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120.0, help="ends by itself after that")
    given = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.benchmarks.settings")
    django.setup()
    from .database import connect

    with connect() as session:
        loop = drain if given.loop == "drain" else listen
        loop(session, given.batch, time.monotonic() + given.seconds)


if __name__ == "__main__":
    main()
