"""Workers that are stopped for three leases, and go on as if nothing had happened."""

from __future__ import annotations

import pytest

from tests.faults.oracle import TOPIC
from tests.faults.scenario_zombies import OUTSIDE, stop_at_failpoints, stop_at_random, stop_while_acting


def test_busy_workers_may_be_stopped_at_any_moment(using: str) -> None:
    """What others have settled meanwhile stays as it was, no atomic effect is made twice, and the zombies
    go on working or have replaced themselves."""
    stop_at_random(using, seed=1, stops=2, zombies=2).check()


@pytest.mark.parametrize("seed", [0, 1], ids=["alone", "supervised"])
def test_a_zombie_does_not_go_on_acting_outside(using: str, seed: int) -> None:
    """Its process ends hard, and another begins, before its handlers get far."""
    stop_while_acting(using, seed=seed, times=1).check()


def test_a_zombie_cannot_settle_what_another_has(using: str) -> None:
    """Stopped when it has claimed, and when it is about to ack: rows that another holds or has settled
    stay as they are, in every column, and it starts none of them."""
    stop_at_failpoints(using, seed=1, moments=[("claim-committed", OUTSIDE), ("before-ack", TOPIC)]).check()
