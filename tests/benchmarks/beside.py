"""The drain, with many other rows in the same table.

They stand in a database of their own. The other side, in turn with it, drains the same number of
messages from a table that has nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from reliable_messaging.models import OutboxMessage

from .backlog import Lot, State, add
from .benchapp.handlers import NOOP
from .databases import FILLED, current
from .figures import Figure
from .observer import Drain
from .rounds import alternate
from .scale import Scale
from .sides import drain_by_worker, rates, worker_side


def beside_rows(scale: Scale, state: State, size: int) -> Figure:
    """Rows that no claim may take; beside them, before each round, those that are drained."""
    current().empty(FILLED)
    add(OutboxMessage, NOOP, size, using=FILLED, state=state)

    def fresh() -> Lot:
        return add(OutboxMessage, NOOP, scale.long_messages, using=FILLED)

    return beside(scale, fresh, f"{size:,} {state.name.lower()}")


def beside(scale: Scale, next_lot: Callable[[], Lot], words: str) -> Figure:
    """Each round drains a lot of the filled database."""

    def beside_many() -> Drain:
        lot = next_lot()
        current().settle(FILLED)
        return drain_by_worker(lot)

    beside_few = worker_side(NOOP, scale.long_messages)
    drains = alternate({"many": beside_many, "few": beside_few}, scale.long_rounds)
    return Figure(
        measure=f"drain beside {words}",
        unit="msg/s",
        ours=rates(drains["many"]),
        reference=rates(drains["few"]),
        reference_name="none",
    )
