"""History: the drain, with many other rows in the same table.

Finished rows that are kept, messages that are due but not yet drained, messages that are not due
yet. They stand in a database of their own; the other side, in turn with it, drains the same number
of messages from a table that has nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reliable_messaging.models import OutboxMessage
from tests.benchmarks.backlog import Lot, State, add
from tests.benchmarks.benchapp.handlers import NOOP
from tests.benchmarks.databases import FILLED, current
from tests.benchmarks.figures import Figure, Point, Target
from tests.benchmarks.observer import Drain
from tests.benchmarks.rounds import alternate
from tests.benchmarks.scale import Scale
from tests.benchmarks.sides import drain_by_worker, rates, worker_side

CURVE = "history"
SIZES = (10_000, 100_000)
"""On the way to the most, for the picture."""
TARGET = Target(must=0.85, aim=0.95)


def measure(scale: Scale) -> Iterator[Figure]:
    most = min(current().many, scale.many)
    for size in [size for size in SIZES if size < most]:
        yield _kept(scale, State.FINISHED, size, Point(curve=CURVE, x=size), target=False)
    yield _kept(scale, State.FINISHED, most, Point(curve=CURVE, x=most))
    yield _pending(scale, most)
    yield _kept(scale, State.DELAYED, most)


def _kept(
    scale: Scale, state: State, size: int, point: Point | None = None, *, target: bool = True
) -> Figure:
    """Rows that no claim may take; beside them, before each round, those that are drained."""
    _fill(state, size)

    def fresh() -> Lot:
        lot = add(OutboxMessage, NOOP, scale.messages, using=FILLED)
        current().settle(FILLED)
        return lot

    return _figure(scale, fresh, f"{size:,} {state.name.lower()}", point, target=target)


def _pending(scale: Scale, size: int) -> Figure:
    """The oldest of them are what is drained. A lot for each round, and one between two rounds: a
    worker goes on until it is stopped, and must not have begun with the lot of the next round."""
    current().empty(FILLED)
    waiting = iter(_lots_in_order(2 * scale.rounds, scale.messages))
    add(OutboxMessage, NOOP, size, using=FILLED)

    def next_lot() -> Lot:
        lot = next(waiting)
        next(waiting)
        current().settle(FILLED)
        return lot

    return _figure(scale, next_lot, f"{size:,} pending")


def _lots_in_order(number: int, messages: int) -> list[Lot]:
    return [add(OutboxMessage, NOOP, messages, using=FILLED) for _ in range(number)]


def _fill(state: State, size: int) -> None:
    current().empty(FILLED)
    add(OutboxMessage, NOOP, size, using=FILLED, state=state)
    current().settle(FILLED)


def _figure(
    scale: Scale, next_lot: Callable[[], Lot], words: str, point: Point | None = None, *, target: bool = True
) -> Figure:
    def beside_many() -> Drain:
        return drain_by_worker(next_lot())

    drains = alternate(
        {"many": beside_many, "few": worker_side(NOOP, scale.messages)},
        scale.rounds,
    )
    return Figure(
        measure=f"drain beside {words}",
        unit="msg/s",
        ours=rates(drains["many"]),
        reference=rates(drains["few"]),
        reference_name="none",
        target=TARGET if target else None,
        point=point,
    )
