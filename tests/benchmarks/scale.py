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
    wakeup_seconds: float
    """For which many connections enqueue, in each round."""
    latency_seconds: float
    late_seconds: float
    idle_windows: int
    idle_seconds: float
    """Of each window."""
    most_history: int
    """The most rows that are kept beside those that are drained."""
    snapshot_seconds: float
    snapshot_window: float
    """Seconds at the beginning and at the end that are compared."""
    memory_messages: int
    memory_early: int
    """Messages after which the memory is looked at first."""


FULL = Scale(
    rounds=3,
    drain_rounds=5,
    messages=20_000,
    atomic_messages=4_000,
    transactions=800,
    bulks=6,
    wakeup_seconds=5,
    latency_seconds=20,
    late_seconds=10,
    idle_windows=6,
    idle_seconds=10,
    most_history=1_000_000,
    snapshot_seconds=60,
    snapshot_window=5,
    memory_messages=1_000_000,
    memory_early=10_000,
)
QUICK = Scale(
    rounds=1,
    drain_rounds=1,
    messages=8_000,
    atomic_messages=1_000,
    transactions=200,
    bulks=3,
    wakeup_seconds=2,
    latency_seconds=4,
    late_seconds=3,
    idle_windows=1,
    idle_seconds=5,
    most_history=50_000,
    snapshot_seconds=8,
    snapshot_window=2,
    memory_messages=20_000,
    memory_early=5_000,
)
