"""Every guard of the app, and the test that fails without it: ``make guards`` tries them all."""

from __future__ import annotations

from . import chunk, claim, flights, handlers, processes, sending, settle, sweep, working
from .guard import Guard

GUARDS: list[Guard] = [
    *sending.GUARDS,
    *claim.GUARDS,
    *settle.GUARDS,
    *sweep.GUARDS,
    *working.GUARDS,
    *chunk.GUARDS,
    *handlers.GUARDS,
    *flights.GUARDS,
    *processes.GUARDS,
]

__all__ = ["GUARDS", "Guard"]
