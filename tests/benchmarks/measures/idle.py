"""Idle: what a worker costs that has nothing to do.

Transactions a second come from the server's own counters for the benchmark's database, with nobody
else connected; CPU is what the kernel charged to the process. The windows begin when the worker has
slowed down to its longest poll interval. Autovacuum's visits, one a minute, are counted too: they
fall into one or two windows of six, and the median leaves them out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from django.db import connections

from reliable_messaging.conf import get_settings
from reliable_messaging.models import Worker
from tests.benchmarks.databases import current
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.processes import Process, worker
from tests.benchmarks.scale import Scale

START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Cost:
    transactions: float | None
    """A second."""
    cpu: float
    """Percent of one core."""


def measure(scale: Scale) -> Iterator[Figure]:
    current().empty()
    current().settle()
    with worker() as process:
        process.wait_until(Worker.objects.exists, "the worker was there", seconds=START_SECONDS)
        connections.close_all()
        time.sleep(_seconds_to_slow_down())
        costs = [_watch(process, scale.idle_seconds) for _ in range(scale.idle_windows)]
    transactions = [cost.transactions for cost in costs if cost.transactions is not None]
    if transactions:
        yield Figure(
            measure="idle worker, transactions",
            unit="tx/s",
            ours=transactions,
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


def _watch(process: Process, seconds: float) -> Cost:
    began, before, cpu = time.monotonic(), current().transactions(), process.cpu_seconds()
    time.sleep(seconds)
    took, after = time.monotonic() - began, current().transactions()
    return Cost(
        transactions=None if before is None or after is None else (after - before) / took,
        cpu=(process.cpu_seconds() - cpu) / took * 100,
    )
