"""The lease of a handler that runs under one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from ..exceptions import LeaseUnavailable
from ..leases.block import LeaseBlock
from ..registry import Handler

LONGEST_WAIT = timedelta(seconds=5)
"""The holder may have it for much longer; but it may also be done in a moment."""


@contextmanager
def under_lease(handler: Handler | None, *, give_up: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold it around the transaction of an atomic handler: inside, nobody would see that it is taken. The
    decorated function knows that it is held, and asks at its end whether it still is. Other handlers take it
    themselves.

    Raises LeaseUnavailable when somebody else has it, and its wait is over, or it is to ``give_up``. That it
    was lost after the handler's end is no error: the work is committed."""
    if handler is None or handler.lease is None or not handler.atomic:
        yield
        return
    block = LeaseBlock(handler.lease, give_up=give_up)
    block.__enter__()
    try:
        yield
    finally:
        block.leave(quietly=True)


def wait_for(unavailable: LeaseUnavailable) -> timedelta:
    """How long the message waits, charged to nothing."""
    return min(unavailable.ends_in, LONGEST_WAIT)
