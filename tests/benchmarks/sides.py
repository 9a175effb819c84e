"""The two sides of a drain: the worker, and the plain loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from reliable_messaging.models import OutboxMessage

from .backlog import Lot, refill
from .benchapp.handlers import NOOP
from .benchapp.models import PlainItem
from .databases import current
from .observer import Drain, watch_drain
from .processes import plain_loop, worker

DEADLINE_SECONDS = 120.0

Side = Callable[[], Drain]


def worker_side(topic: str, count: int, *options: str, environment: Mapping[str, str] = {}) -> Side:
    """A worker with these options drains so many messages of the topic."""
    return lambda: drain_by_worker(refill(OutboxMessage, topic, count), *options, environment=environment)


def plain_side(count: int, batch: int, *, processes: int = 1) -> Side:
    """The plain loop drains as much as takes it about as long as a worker takes for so many."""

    def side() -> Drain:
        lot = refill(PlainItem, NOOP, current().plain_lot * count)
        with ExitStack() as running:
            loops = [
                running.enter_context(plain_loop("drain", "--batch", str(batch))) for _ in range(processes)
            ]
            return watch_drain(loops[0], lot, deadline=DEADLINE_SECONDS)

    return side


def drain_by_worker(lot: Lot, *options: str, environment: Mapping[str, str] = {}) -> Drain:
    with worker("--database", lot.using, *options, environment=environment) as process:
        return watch_drain(process, lot, deadline=DEADLINE_SECONDS)


def rates(drains: Sequence[Drain]) -> list[float]:
    return [drain.rate for drain in drains]
