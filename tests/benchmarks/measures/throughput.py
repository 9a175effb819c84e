"""Throughput: the drain again, with the preset that is made for it and its batch size."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.benchapp.handlers import NOOP
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.product import throughput_options
from tests.benchmarks.rounds import alternate
from tests.benchmarks.scale import Scale
from tests.benchmarks.sides import plain_side, rates, worker_side

BATCH = 500


def measure(scale: Scale) -> Iterator[Figure]:
    options = throughput_options()
    drains = alternate(
        {
            "preset": worker_side(NOOP, 2 * scale.messages, *options),
            "plain": plain_side(2 * scale.messages, BATCH),
        },
        scale.rounds,
    )
    yield Figure(
        measure=f"drain, no-op, {' '.join(options)}",
        unit="msg/s",
        ours=rates(drains["preset"]),
        reference=rates(drains["plain"]),
        reference_name=f"plain loop, batch {BATCH}",
        target=Target(must=0.5, aim=0.7),
        note="" if "--preset" in options else "this release has no presets",
    )
