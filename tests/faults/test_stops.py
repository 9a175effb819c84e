"""Workers that are told to stop while they are busy, once and twice."""

from __future__ import annotations

import pytest

from tests.faults.scenario_stops import insist, stop_at_random


def test_busy_workers_may_be_told_to_stop_at_any_moment(using: str) -> None:
    """Each ends with 0 inside its grace, charges nothing, leaves nothing claimed, and has done nothing
    that is not acknowledged."""
    stop_at_random(using, seed=1, stops=4, workers=2).check()


@pytest.mark.parametrize("processes", [None, 2], ids=["alone", "supervised"])
def test_a_second_signal_ends_every_process_at_once(using: str, processes: int | None) -> None:
    """Also the quarantine, and what a supervisor has started; another worker finishes their work."""
    insist(using, seed=1, processes=processes).check()
