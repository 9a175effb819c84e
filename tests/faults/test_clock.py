"""Workers whose clocks are wrong."""

from __future__ import annotations

from tests.faults.scenario_clock import clocks, purges

SEED = 20261117


def test_wrong_clocks_change_nothing(using: str) -> None:
    """Workers that are an hour ahead, an hour behind, and jumping: nothing runs before it is due by the
    database's clock, nor long after; no claim is taken from the living; retries and expiry are in time."""
    clocks(using, seed=SEED, messages=20).check()


def test_wrong_clocks_purge_nothing_early(using: str) -> None:
    """What is done goes when its retention is over by the database's clock, and not before."""
    purges(using, seed=SEED, messages=20, retention=3.0).check()
