"""Giving up on a handler that is past its time."""

from __future__ import annotations

from ..dispatch import Failed, settlement_for
from ..registry import registry
from ..workqueue import Release
from .flights import Flights
from .runs import Run


def give_up(run: Run, flights: Flights) -> None:
    """Charge the message one failure, and free its chunk's other members: their effects stand in the
    same transaction, which can never commit now. Only then is the handler told to stop.

    Should it come back, its claim is gone: the fenced ack matches nothing, and undoes all."""
    failed = Failed(error=run.report(), duration=run.timeout)
    mates = [mate for mate in run.mates if mate.id != run.message.id]
    flights.land(
        [run.message, *mates],
        [
            settlement_for(run.message, registry.find(run.message.topic), failed),
            *(Release(item=mate) for mate in mates),
        ],
    )
    flights.lose([run.message, *mates])
    run.stop()


def give_back(run: Run, flights: Flights) -> None:
    """Free a message whose coroutine is stuck behind another's: that is nothing to charge it with."""
    flights.land([run.message], [Release(item=run.message)])
    flights.lose([run.message])
    run.stop()
