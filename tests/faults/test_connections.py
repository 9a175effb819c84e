"""Lost connections, a few times each: the worker comes back by itself, and nothing is lost or twice."""

from __future__ import annotations

import pytest

from reliable_messaging.models import OutboxMessage
from tests.conftest import ROW_LOCKING
from tests.faults.oracle import Oracle
from tests.faults.proxy import CUTS, Proxy
from tests.faults.scenario_connections import crashed_server, cut_wire, ended_sessions
from tests.faults.server_sessions import end_other_sessions
from tests.faults.servers import OWN
from tests.faults.wired import working
from tests.services import address_of, reached_at
from tests.workers import Start, eventually

SEED = 20261117
TRIED = {"postgres": CUTS, "mariadb": ("reset", "swallow")}
"""Of MariaDB's driver one that it is told of, and one that it is not. The long version has them all."""


def test_workers_survive_the_end_of_every_session(row_locking: str) -> None:
    """Ended by the server while they are busy: new ones are made, and no claim stays behind."""
    ended_sessions(row_locking, seed=SEED, times=3).check()


def test_the_next_message_does_not_pay_for_the_last_outage(row_locking: str, start: Start) -> None:
    """The claiming thread meets it first. Then no handler thread uses a session from before: one
    message after the other would fail on each of them."""
    oracle = Oracle(row_locking)
    start(row_locking, "--poll-max", "0.2", "--chunk-size", "1")
    for topic in ("fault.effect", "fault.loose"):
        oracle.produce(40, topic=topic)
    oracle.wait()
    end_other_sessions(row_locking)
    for topic in ("fault.effect", "fault.loose"):
        oracle.produce(8, topic=topic)
    oracle.wait()
    oracle.result("idle").check()
    assert not OutboxMessage._base_manager.using(row_locking).exclude(attempts=1).exists()


def test_an_idle_worker_notices_a_dead_wire(row_locking: str) -> None:
    """Neither an answer nor an error ever comes, and no handler runs that would show it: the heartbeat
    alone tells, within a lease, and the process replaces itself."""
    oracle = Oracle(row_locking)
    with Proxy(address_of(row_locking)) as proxy:
        with working(row_locking, environment=reached_at(row_locking, proxy.address)) as workers:
            workers.warm_up(oracle)
            proxy.swallow()
            eventually(lambda: workers.replaced >= 1)
            proxy.restore()
            assert "did not answer the heartbeat for a whole lease" in workers.log
            oracle.produce(5)
            oracle.wait()
    oracle.result("dead wire").check()


@pytest.mark.parametrize("alias", ROW_LOCKING)
def test_workers_survive_a_crash_of_the_server(alias: str, database_access: None) -> None:
    """They wait without spinning. What was committed takes effect once, also when no answer came."""
    if reason := OWN[alias].unavailable():
        pytest.skip(reason)
    crashed_server(alias, seed=SEED, times=1).check()


@pytest.mark.parametrize(("alias", "cut"), [(alias, cut) for alias in ROW_LOCKING for cut in TRIED[alias]])
def test_a_worker_survives_a_cut_wire(alias: str, cut: str, database_access: None) -> None:
    """It neither spins nor hangs, is back within lease, poll interval, one pause and the start of a
    process, and leaves no session on the server."""
    cut_wire(alias, seed=SEED, cut=cut, times=1).check()
