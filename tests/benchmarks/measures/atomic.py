"""Atomic handlers: one INSERT each, with the default chunk and with one transaction for each message."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.benchapp.handlers import INSERT
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.rounds import alternate
from tests.benchmarks.scale import Scale
from tests.benchmarks.sides import rates, worker_side


def measure(scale: Scale) -> Iterator[Figure]:
    drains = alternate(
        {
            "chunks": worker_side(INSERT, scale.atomic_messages),
            "single": worker_side(INSERT, scale.atomic_messages, "--chunk-size", "1"),
        },
        scale.rounds,
    )
    yield Figure(
        measure="drain, atomic, one INSERT",
        unit="msg/s",
        ours=rates(drains["chunks"]),
        reference=rates(drains["single"]),
        reference_name="chunk size 1",
        target=Target(must=2, aim=3),
    )
