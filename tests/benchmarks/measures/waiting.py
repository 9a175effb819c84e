"""Waiting: the drain, with many more messages in the same table that are due, or that are not due yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reliable_messaging.models import OutboxMessage
from tests.benchmarks.backlog import Lot, State, add
from tests.benchmarks.benchapp.handlers import NOOP
from tests.benchmarks.beside import beside, beside_rows
from tests.benchmarks.databases import FILLED, current
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.scale import Scale


def measure(scale: Scale) -> Iterator[Figure]:
    many = min(current().many, scale.many)
    for figure in (_pending(scale, many), beside_rows(scale, State.DELAYED, many)):
        yield replace(figure, target=Target(must=0.85, aim=0.95))


def _pending(scale: Scale, size: int) -> Figure:
    """The oldest of them are what is drained. A lot for each round, and one between two rounds: a
    worker goes on until it is stopped, and must not have begun with the lot of the next round."""
    current().empty(FILLED)
    lots = [add(OutboxMessage, NOOP, scale.long_messages, using=FILLED) for _ in range(2 * scale.long_rounds)]
    add(OutboxMessage, NOOP, size, using=FILLED)
    rounds = iter(lots[::2])

    def oldest() -> Lot:
        return next(rounds)

    return beside(scale, oldest, f"{size:,} pending")
