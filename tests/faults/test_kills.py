"""Workers and producers killed with SIGKILL: at each failpoint, and at random moments.

How soon the victims' work is back is a matter of make chaos, where nothing else is running.
"""

from __future__ import annotations

from tests.faults.scenario_kills import kill_at_failpoints, kill_at_random

PATIENT = 20.0


def test_a_kill_at_any_failpoint_loses_and_repeats_nothing(using: str) -> None:
    """One victim at each: nothing is lost, done twice, or sent by a producer that never committed, and
    what the victims held comes back."""
    kill_at_failpoints(using, seed=1, times=1, slack=PATIENT).check()


def test_kills_at_random_moments_lose_and_repeat_nothing(using: str) -> None:
    """Of busy workers, one after the other, with the same claims."""
    kill_at_random(using, seed=2, kills=4, workers=3, slack=PATIENT).check()
