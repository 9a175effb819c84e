"""Messages that kill their worker, or eat its memory."""

from __future__ import annotations

from tests.faults.scenario_poison import hoarders, poison

SEED = 20261117


def test_exactly_the_guilty_one_is_dead(using: str) -> None:
    """A segmentation fault in a batch of 50, with 4 threads in each of 2 processes: its message is dead
    after MAX_CRASHES, with no failure. All else is done once, with one crash at most, and what came
    meanwhile did not have to wait."""
    poison(using, seed=SEED, guilty=["poison.segfault"]).check()


def test_a_memory_error_is_a_failure(using: str) -> None:
    """Under a limit of its address space the process lives on; only max_attempts ends the message."""
    hoarders(using, seed=SEED).check()
