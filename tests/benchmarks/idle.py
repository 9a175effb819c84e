"""Idle: what a worker costs that has nothing to do.

Transactions a second come from PostgreSQL's own counters for the benchmark's database, read from
another database, with nobody else connected; CPU is what the kernel charged to the process. The
windows begin when the worker has slowed down to its longest poll interval. Autovacuum's visits, one
a minute, are counted too: they fall into one or two windows of six, and the median leaves them out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import connection, connections

from reliable_messaging.conf import get_settings
from reliable_messaging.models import Worker

from .database import MAINTENANCE, connect, empty_tables, settle_tables
from .figures import Figure, Target
from .processes import Process, worker
from .scale import Scale

START_SECONDS = 30.0
COUNTERS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"


@dataclass(frozen=True, slots=True)
class Cost:
    transactions: float
    """A second."""
    cpu: float
    """Percent of one core."""


def measure(scale: Scale) -> Iterator[Figure]:
    empty_tables()
    settle_tables()
    with connect(MAINTENANCE) as outside, worker() as process:
        process.wait_until(Worker.objects.exists, "the worker was there", seconds=START_SECONDS)
        connections.close_all()
        time.sleep(_seconds_to_slow_down())
        costs = [_watch(outside, process, scale.idle_seconds) for _ in range(scale.idle_windows)]
    yield Figure(
        measure="idle worker, transactions",
        unit="tx/s",
        ours=[cost.transactions for cost in costs],
        target=Target(must=0.5, aim=0.25, at_least=False, of_ratio=False),
    )
    yield Figure(
        measure="idle worker, CPU",
        unit="%",
        ours=[cost.cpu for cost in costs],
        target=Target(must=0.5, aim=0.5, at_least=False, of_ratio=False),
    )


def _seconds_to_slow_down() -> float:
    """The delay doubles from POLL_MIN, so all delays below POLL_MAX are less than twice it."""
    return 2 * get_settings().POLL_MAX.total_seconds()


def _watch(outside: psycopg.Connection[Any], process: Process, seconds: float) -> Cost:
    began, transactions, cpu = time.monotonic(), _transactions(outside), process.cpu_seconds()
    time.sleep(seconds)
    took = time.monotonic() - began
    return Cost(
        transactions=(_transactions(outside) - transactions) / took,
        cpu=(process.cpu_seconds() - cpu) / took * 100,
    )


def _transactions(outside: psycopg.Connection[Any]) -> int:
    row = outside.execute(COUNTERS, [connection.settings_dict["NAME"]]).fetchone()
    assert row is not None
    return int(row[0])
