"""Limits of the server, met a few times each: workers wait, try again, and do everything once."""

from __future__ import annotations

import os

import pytest

from tests.conftest import ROW_LOCKING
from tests.faults.scenario_server_limits import (
    crossed_claims,
    crossed_handlers,
    exhausted,
    through_pgbouncer,
    timeouts,
)
from tests.faults.servers import OWN, PgBouncer

SEED = 20261117


def test_workers_survive_time_outs_of_the_server(row_locking: str) -> None:
    """Of locks and of statements: in claims, settlements and renewals they are tried again; a handler
    is charged with a transient failure, and nobody else."""
    timeouts(row_locking, seed=SEED, rounds=1).check()


def test_handlers_of_two_workers_survive_deadlocks(row_locking: str) -> None:
    """They lock the same rows in opposite orders. In the end each has taken effect, once."""
    crossed_handlers(row_locking, seed=SEED, messages=16).check()


def test_the_queue_survives_deadlocks(row_locking: str) -> None:
    """Somebody locks claimed rows from the last to the first: settlements are tried again."""
    crossed_claims(row_locking, seed=SEED, times=1).check()


@pytest.mark.parametrize("alias", ROW_LOCKING)
def test_a_worker_survives_a_server_without_connections(alias: str, database_access: None) -> None:
    """It waits for one at its start and in its work, does not spin, and goes on by itself."""
    if reason := OWN[alias].unavailable():
        pytest.skip(reason)
    exhausted(alias, seed=SEED, times=2).check()


@pytest.mark.parametrize("pool", [10, 3])
def test_workers_behind_pgbouncer(pool: int, database_access: None) -> None:
    """In transaction mode, also with fewer sessions than threads: everything once, workers and
    PgBouncer itself being killed."""
    if reason := PgBouncer.unavailable():
        assert os.environ.get("REQUIRE_SERVICES") != "1", reason
        pytest.skip(reason)
    through_pgbouncer("postgres", seed=SEED, times=3, pool=pool).check()
