"""A worker process reaches its database through the proxy."""

from __future__ import annotations

from tests.faults.oracle import Oracle
from tests.faults.proxy import Proxy
from tests.services import address_of, reached_at
from tests.workers import Start


def test_a_worker_works_through_the_proxy(row_locking: str, start: Start) -> None:
    """All of its traffic is seen there, and the oracle, which goes past it, finds everything done."""
    oracle = Oracle(row_locking)
    oracle.produce(20)
    with Proxy(address_of(row_locking)) as proxy:
        worker = start(
            row_locking, "--burst", "--verbosity", "0", environment=reached_at(row_locking, proxy.address)
        )
        assert worker.wait() == 0
        assert proxy.connections > 0
        assert proxy.bytes_up > 20 * 36
    oracle.result("through the proxy").check()
