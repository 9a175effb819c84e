"""Leases of processes that are stopped and killed."""

from __future__ import annotations

from tests.faults.scenario_leases import contend

SEED = 20261119


def test_two_never_hold_a_lease(using: str) -> None:
    """Ten processes, stopped for longer than the lease lasts, and killed: by the database's clock their
    times never overlap, tokens strictly rise, and what compares tokens takes no write of a stale holder."""
    contend(using, seed=SEED, contenders=10, seconds=6.0).check()
