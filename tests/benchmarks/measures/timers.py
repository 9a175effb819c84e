"""Timers: how fast a scheduler makes messages of those that are due, a hundred bytes of payload each.

Beside it a loop of one plain statement for as many rows, which locks, ends and inserts: no Python touches a
row. And beside many timers that wait, ours again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import uuid4

from django.db import connection, transaction

from reliable_messaging import OutgoingMessage, timers
from reliable_messaging.models import OutboxMessage, Status, Timer
from reliable_messaging.promote import BATCH
from tests.benchmarks.backlog import BULK, sample_payload
from tests.benchmarks.benchapp.handlers import NOOP
from tests.benchmarks.databases import current
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.rounds import alternate
from tests.benchmarks.scale import Scale

COLUMNS = (
    *("id", "topic", "payload", "headers", "queue", "priority", "destination", "stream"),
    *("correlation_id", "causation_id", "max_attempts", "due_at"),
)
CONSTANTS = {
    "status": 0,
    "attempts": 0,
    "failures": 0,
    "transient_failures": 0,
    "crashes": 0,
    "last_error": "''",
}
FIRE = f"""
    WITH due AS (
        SELECT * FROM {Timer._meta.db_table}
        WHERE status = {Status.READY} AND crashes = 0 AND queue = 'default' AND priority = 0
            AND due_at <= statement_timestamp()
        ORDER BY due_at, id LIMIT {BATCH} FOR UPDATE SKIP LOCKED
    ), fired AS (
        UPDATE {Timer._meta.db_table} SET status = {Status.DONE}, finished_at = statement_timestamp()
        WHERE id IN (SELECT id FROM due)
    )
    INSERT INTO {OutboxMessage._meta.db_table} ({", ".join([*COLUMNS, *CONSTANTS, "created_at"])})
    SELECT {", ".join([*COLUMNS, *map(str, CONSTANTS.values()), "statement_timestamp()"])} FROM due
"""


def measure(scale: Scale) -> Iterator[Figure]:
    sides: dict[str, Callable[[], float]] = {"ours": lambda: _rate(scale.messages, _ours)}
    if current().copies:
        sides["plain"] = lambda: _rate(scale.messages, _plain)
    found = alternate(sides, scale.drain_rounds)
    yield Figure(
        measure="timers that fire",
        unit="timers/s",
        ours=found["ours"],
        reference=found.get("plain", []),
        reference_name="plain INSERT … SELECT" if "plain" in found else "",
    )
    many = min(current().many, scale.many)
    beside = alternate(
        {
            "none": lambda: _rate(scale.messages, _ours),
            "many": lambda: _rate(scale.messages, _ours, pending=many),
        },
        scale.drain_rounds,
    )
    yield Figure(
        measure=f"timers that fire beside {many:,} pending",
        unit="timers/s",
        ours=beside["many"],
        reference=beside["none"],
        reference_name="none",
        target=Target(must=0.85, aim=0.95),
    )


def _rate(count: int, fire: Callable[[], int], *, pending: int = 0) -> float:
    current().empty()
    for first in range(0, count, BULK):
        due = [
            OutgoingMessage(topic=NOOP, payload=sample_payload(n), delay=0)
            for n in range(first, first + BULK)
        ]
        timers.schedule_many(due[: count - first])
    _wait_for_nobody(pending)
    current().settle()
    began, fired = time.perf_counter(), fire()
    elapsed = time.perf_counter() - began
    assert fired == count
    return count / elapsed


def _ours() -> int:
    return timers.fire_all_due()


def _plain() -> int:
    fired = 0
    with connection.cursor() as cursor:
        while True:
            cursor.execute(FIRE)
            if not cursor.rowcount:
                return fired
            fired += cursor.rowcount


def _wait_for_nobody(count: int) -> None:
    """Timers of tomorrow: one is scheduled, and multiplied inside the database."""
    if not count:
        return
    one = timers.schedule(NOOP, sample_payload(0), delay=timedelta(days=1))
    table = Timer._meta.db_table
    columns = [str(field.column) for field in Timer._meta.concrete_fields]
    values = ", ".join(current().numbered_id(str(uuid4())[:24]) if c == "id" else c for c in columns)
    with transaction.atomic(), connection.cursor() as cursor:
        for first in range(1, count + 1, BULK):
            numbers = current().numbers(first, min(first + BULK - 1, count))
            cursor.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {table}, {numbers} "
                f"WHERE id = %s",
                [Timer._meta.pk.get_db_prep_value(one.pk, connection)],
            )
