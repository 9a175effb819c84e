"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    rounds: int
    messages: int
    """Drained in each round by the no-op sides."""
    atomic_messages: int
    transactions: int
    """Business transactions of each kind in a round."""
    bulks: int
    """Bulk enqueues of each kind in a round."""
    latency_seconds: float
    idle_seconds: float


FULL = Scale(
    rounds=3,
    messages=20_000,
    atomic_messages=4_000,
    transactions=800,
    bulks=6,
    latency_seconds=10,
    idle_seconds=20,
)
QUICK = Scale(
    rounds=1,
    messages=8_000,
    atomic_messages=1_000,
    transactions=300,
    bulks=3,
    latency_seconds=4,
    idle_seconds=10,
)
