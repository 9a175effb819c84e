"""Jobs whose schedulers are killed."""

from __future__ import annotations

from tests.faults.scenario_jobs import kill_schedulers

SEED = 20261119


def test_killed_schedulers_double_and_miss_no_run(using: str) -> None:
    """Five schedulers for jobs that are due every second, killed at random moments and between a plan and
    its commit: each second has one run of each job, and each run one message, none before its time."""
    kill_schedulers(using, seed=SEED, number=5, seconds=8.0).check()
