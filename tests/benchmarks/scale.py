"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    rounds: int
    drain_rounds: int
    """More than the others: a plain drain lasts only a second, so any neighbour's noise shows."""
    messages: int
    """Drained in each round by the no-op worker; the plain loop, which is faster, gets twice as many."""
    atomic_messages: int
    transactions: int
    """Business transactions of each kind in a round."""
    bulks: int
    """Bulk enqueues of each kind in a round."""
    latency_seconds: float
    idle_windows: int
    idle_seconds: float
    """Of each window."""


FULL = Scale(
    rounds=3,
    drain_rounds=5,
    messages=20_000,
    atomic_messages=4_000,
    transactions=800,
    bulks=6,
    latency_seconds=10,
    idle_windows=6,
    idle_seconds=10,
)
QUICK = Scale(
    rounds=1,
    drain_rounds=1,
    messages=8_000,
    atomic_messages=1_000,
    transactions=300,
    bulks=3,
    latency_seconds=4,
    idle_windows=1,
    idle_seconds=10,
)
