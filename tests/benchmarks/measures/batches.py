"""Batches: the drain against the batch size, for the picture."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.benchapp.handlers import NOOP
from tests.benchmarks.figures import Figure, Point
from tests.benchmarks.rounds import alternate
from tests.benchmarks.scale import Scale
from tests.benchmarks.sides import plain_side, rates, worker_side

CURVE = "batch"
SHARES = {1: 0.2, 10: 0.4, 50: 1, 100: 1, 500: 2}
"""Of the messages of a usual drain: small batches are slow."""


def measure(scale: Scale) -> Iterator[Figure]:
    for batch in scale.batch_sizes:
        count = int(scale.messages * SHARES[batch])
        drains = alternate(
            {
                "worker": worker_side(NOOP, count, "--batch-size", str(batch)),
                "plain": plain_side(count, batch),
            },
            scale.rounds,
        )
        yield Figure(
            measure=f"drain, no-op, --batch-size {batch}",
            unit="msg/s",
            ours=rates(drains["worker"]),
            reference=rates(drains["plain"]),
            reference_name=f"plain loop, batch {batch}",
            point=Point(curve=CURVE, x=batch),
        )
