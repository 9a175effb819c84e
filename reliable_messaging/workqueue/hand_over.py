"""Due items that become something else, without ever being claimed.

One transaction locks them, writes what they become, and ends them. There is no lease that could end, and so
nothing to recover: whoever dies in the middle has done nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import F

from .. import clock
from ..failpoints import hit
from ..models import WorkItem
from . import by_id, claim
from .lane import Lane
from .settle import DONE

Make = Callable[[list[Any]], None]
"""Writes what the items become, inside the transaction."""


def hand_over(
    model: type[WorkItem], using: str, *, lane: Lane | None, limit: int, make: Make, keep_done: bool
) -> list[Any]:
    """Of the lane; without one, of the suspects: what somebody's own processor died over need not be feared
    here. Call inside a transaction."""
    rows = claim.lock_due(model, using, lane, limit)
    if not rows:
        return []
    items = [model.claimed_value(row[:-1], owner_token=None, claimed_at=row[-1], using=using) for row in rows]
    make(items)
    hit("handed-over")
    ids = [item.id for item in items]
    if keep_done:
        by_id.update(
            model,
            using,
            ids,
            {
                **DONE,
                **model.ready_only,
                "attempts": F("attempts") + 1,
                "last_attempt_at": clock.now(),
                "finished_at": clock.now(),
            },
        )
    else:
        by_id.delete(model, using, ids)
    return items
