"""A few seconds at load."""

from __future__ import annotations

import os
from dataclasses import replace
from uuid import uuid4

import pytest

from tests.faults.gauge import Gauge
from tests.faults.scenario_soak import Watched, soak, sockets_of, threads_of

SEED = 20261117


def test_nothing_is_leaked_at_load(using: str) -> None:
    """With DEBUG off and on: every message once; the threads are as many as at the start, connections no
    more than there are threads for them; no transaction idles; Django's list of queries stays short."""
    for result in soak(using, seed=SEED, minutes=0.15, rate=200, lease=3):
        result.check()


USUAL = threads_of("default")
SOCKETS = sockets_of("default")
STEADY = Gauge(
    pid=os.getpid(),
    resident=[60, 70, 80, 100, 101, 99, 100, 103, 104],
    threads=[USUAL] * 9,
    sockets=[SOCKETS] * 9,
)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"resident": [60, 70, 80, 100, 101, 99, 107, 108, 109]}, "8.0%"),
        ({"threads": [USUAL] * 8 + [USUAL + 1]}, f"not {USUAL}"),
        ({"sockets": [SOCKETS - 2] * 6 + [SOCKETS] * 3}, "sockets grew"),
        ({"sockets": [SOCKETS + 1] * 9}, "are enough"),
    ],
)
def test_what_leaks_is_seen(change: dict[str, list[int]], problem: str | None) -> None:
    """A gauge that sees nothing would find every worker clean."""
    watched = Watched(debug=False, gauge=replace(STEADY, **change), worker=uuid4())
    problems = list(watched.problems("default", done=1000, is_long=True))
    assert len(problems) == (problem is not None)
    assert problem is None or problem in problems[0]


def test_a_gauge_reads_this_process() -> None:
    """Its memory is some megabytes, and it has a thread."""
    gauge = Gauge(os.getpid())
    gauge.read()
    assert gauge.resident[0] > 1 << 20
    assert gauge.threads[0] >= 1
