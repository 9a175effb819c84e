"""History: the drain, with finished messages kept in the same table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.benchmarks.backlog import State
from tests.benchmarks.beside import beside_rows
from tests.benchmarks.databases import current
from tests.benchmarks.figures import Figure, Point, Target
from tests.benchmarks.scale import Scale

CURVE = "history"
SIZES = (10_000, 100_000)
"""On the way to many, for the picture."""


def measure(scale: Scale) -> Iterator[Figure]:
    many = min(current().many, scale.many)
    for size in [*(size for size in SIZES if size < many), many]:
        yield replace(
            beside_rows(scale, State.FINISHED, size),
            target=Target(must=0.85, aim=0.95) if size == many else None,
            point=Point(curve=CURVE, x=size),
        )
