"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    rounds: int
    drain_rounds: int
    """More than the others: a plain drain lasts only a second, so any neighbour's noise shows."""
    messages: int
    """Drained in each round by the no-op worker; the plain loop, which is faster, gets more."""
    long_rounds: int
    long_messages: int
    """Where a worker is compared with a worker: the difference is small, so a drain of a second is too short.
    (Not beside the plain loop, which gets slower as it goes on, and a worker does not.)"""
    computing_messages: int
    """For handlers that take about half a millisecond each."""
    atomic_messages: int
    transactions: int
    """Business transactions of each kind in a round."""
    bulks: int
    """Bulk enqueues of each kind in a round."""
    wakeup_rounds: int
    latency_seconds: float
    late_seconds: float
    idle_windows: int
    idle_seconds: float
    """Of each window."""
    many: int
    """The most rows that are kept beside the drained ones, or drained by one worker."""
    snapshot_seconds: float
    snapshot_window: float
    """Seconds at the beginning and at the end that are compared."""
    early: int
    """Messages after which the memory is looked at first."""
    batch_sizes: tuple[int, ...]


FULL = Scale(
    rounds=3,
    drain_rounds=5,
    messages=15_000,
    long_rounds=5,
    long_messages=60_000,
    computing_messages=12_000,
    atomic_messages=4_000,
    transactions=800,
    bulks=6,
    wakeup_rounds=12,
    latency_seconds=20,
    late_seconds=10,
    idle_windows=5,
    idle_seconds=10,
    many=1_000_000,
    snapshot_seconds=60,
    snapshot_window=5,
    early=10_000,
    batch_sizes=(1, 10, 50, 100, 500),
)
SHORT = replace(
    FULL,
    drain_rounds=3,
    long_rounds=3,
    long_messages=20_000,
    latency_seconds=8,
    late_seconds=5,
    idle_windows=3,
)
"""For the databases that nothing was promised for."""
QUICK = Scale(
    rounds=1,
    drain_rounds=1,
    messages=4_000,
    long_rounds=1,
    long_messages=8_000,
    computing_messages=2_000,
    atomic_messages=1_000,
    transactions=200,
    bulks=2,
    wakeup_rounds=2,
    latency_seconds=3,
    late_seconds=2,
    idle_windows=1,
    idle_seconds=5,
    many=30_000,
    snapshot_seconds=5,
    snapshot_window=1.5,
    early=5_000,
    batch_sizes=(1, 50, 500),
)
