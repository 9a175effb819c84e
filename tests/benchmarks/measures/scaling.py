"""Scaling: two worker processes on the backlog that one has in the other side."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.benchapp.handlers import NOOP
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.rounds import alternate
from tests.benchmarks.scale import Scale
from tests.benchmarks.sides import rates, worker_side


def measure(scale: Scale) -> Iterator[Figure]:
    drains = alternate(
        {
            "two": worker_side(NOOP, 2 * scale.messages, "--processes", "2"),
            "one": worker_side(NOOP, 2 * scale.messages),
        },
        scale.rounds,
    )
    yield Figure(
        measure="drain, no-op, 2 processes",
        unit="msg/s",
        ours=rates(drains["two"]),
        reference=rates(drains["one"]),
        reference_name="1 process",
        target=Target(must=1.4, aim=1.7),
    )
