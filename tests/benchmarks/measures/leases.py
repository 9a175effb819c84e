"""Leases: what it costs to take one and to give it back, beside PostgreSQL's own advisory lock.

Ours is two transactions, and what it promises outlives the session; an advisory lock is no row, and is gone
with its session, also when only a proxy in between has lost it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median

from django.db import connection

from reliable_messaging import leases
from tests.benchmarks.databases import current
from tests.benchmarks.figures import Figure
from tests.benchmarks.rounds import alternate
from tests.benchmarks.scale import Scale

NAME = "bench"


def measure(scale: Scale) -> Iterator[Figure]:
    times = max(1, scale.transactions // 4)
    sides = {"ours": lambda: _typical(_lease, times)}
    if current().notifies:
        sides["advisory"] = lambda: _typical(_advisory_lock, times)
    found = alternate(sides, scale.rounds)
    yield Figure(
        measure="take a lease and give it back",
        unit="µs",
        ours=found["ours"],
        reference=found.get("advisory", []),
        reference_name="pg_advisory_lock" if "advisory" in found else "",
    )


def _typical(work: Callable[[], None], times: int) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1e6)
    return median(taken)


def _lease() -> None:
    held = leases.acquire(NAME)
    assert held is not None
    held.release()


def _advisory_lock() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(1)")
        cursor.execute("SELECT pg_advisory_unlock(1)")
