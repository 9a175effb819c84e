"""Scaling: two worker processes on the backlog that one has in the other side.

Processes are for handlers that compute: threads take turns in one interpreter. For handlers that do nothing
it is the database's work that is shared out, and beside them stand two plain loops and one: when everything
is on one small machine, they show how much room it has for a second process at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from reliable_messaging.conf import get_settings
from tests.benchmarks.benchapp.handlers import COMPUTE, NOOP
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.rounds import alternate
from tests.benchmarks.scale import Scale
from tests.benchmarks.sides import Side, plain_side, rates, worker_side

TWO = ("--processes", "2")
TARGET = Target(must=1.4, aim=1.7)


def measure(scale: Scale) -> Iterator[Figure]:
    computing, long, batch = scale.computing_messages, scale.long_messages, get_settings().BATCH_SIZE
    yield _figure(
        scale,
        "drain, computing handler, 2 processes",
        two=worker_side(COMPUTE, computing, *TWO),
        one=worker_side(COMPUTE, computing),
        target=TARGET,
    )
    yield _figure(
        scale,
        "drain, no-op, 2 processes",
        two=worker_side(NOOP, long, *TWO),
        one=worker_side(NOOP, long),
        target=TARGET,
    )
    yield _figure(
        scale,
        "plain loop, 2 processes",
        two=plain_side(long, batch, processes=2),
        one=plain_side(long, batch),
    )


def _figure(scale: Scale, name: str, *, two: Side, one: Side, target: Target | None = None) -> Figure:
    drains = alternate({"two": two, "one": one}, scale.long_rounds)
    return Figure(
        measure=name,
        unit="msg/s",
        ours=rates(drains["two"]),
        reference=rates(drains["one"]),
        reference_name="1 process",
        target=target,
    )
