"""Every guard of the app, and the test that fails without it: ``make guards`` tries them all."""

from __future__ import annotations

from . import (
    chunk,
    claim,
    coroutines,
    cron,
    flights,
    handlers,
    jobs,
    kept_plans,
    leases,
    processes,
    sending,
    settle,
    single_statement,
    sweep,
    timers,
    waking,
    working,
)
from .guard import Guard

PARTS: dict[str, list[Guard]] = {
    "Enqueue": sending.GUARDS,
    "Look and claim": claim.GUARDS,
    "Settle and renew": settle.GUARDS,
    "Acknowledge and claim at once": single_statement.GUARDS,
    "Kept plans": kept_plans.GUARDS,
    "Reap, expire, purge; requeue, cancel, retry": sweep.GUARDS,
    "A worker's turn": working.GUARDS,
    "The wake-up": waking.GUARDS,
    "The chunk": chunk.GUARDS,
    "The call of a handler": handlers.GUARDS,
    "Async handlers": coroutines.GUARDS,
    "What a process holds": flights.GUARDS,
    "Timers": timers.GUARDS,
    "Jobs and their runs": jobs.GUARDS,
    "Cron": cron.GUARDS,
    "Named leases": leases.GUARDS,
    "Processes and sessions": processes.GUARDS,
}
GUARDS: list[Guard] = [guard for guards in PARTS.values() for guard in guards]

__all__ = ["GUARDS", "PARTS", "Guard"]
