"""Sessions of the handler threads: kept from message to message, and renewed before they can be stale."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import pytest
from django.db import connections

from reliable_messaging import clock
from reliable_messaging.session import handler_limits
from reliable_messaging.workers.pool import Pool
from tests.workers import eventually

LEASE = timedelta(seconds=60)


class OneThread:
    """A pool of one, which is asked for its session."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._sessions: SimpleQueue[object] = SimpleQueue()
        self.pool = Pool(1, alias=using, limits=handler_limits(LEASE), on_end=lambda: None)
        self.pool.start()

    def session(self) -> object:
        def ask(connection: Any) -> None:
            assert connection is connections[self._using]
            connection.ensure_connection()
            self._sessions.put(connection.connection)

        self.pool.submit(ask)
        return self._sessions.get(timeout=10)

    def close(self) -> None:
        self.pool.close()
        eventually(lambda: not self.pool.alive)


@pytest.fixture
def thread(using: str) -> Iterator[OneThread]:
    made = OneThread(using)
    yield made
    made.close()


def test_a_session_is_kept(thread: OneThread) -> None:
    """To connect for each message would cost more than the message."""
    thread.pool.follow("the claiming thread's")
    assert thread.session() is thread.session()


def test_a_new_session_of_the_claiming_thread_renews_those_of_the_handlers(thread: OneThread) -> None:
    """What ended its old one has ended theirs, and the next message must not pay for it."""
    thread.pool.follow("the first")
    before = thread.session()
    thread.pool.follow("the second")
    after = thread.session()
    assert after is not before
    assert thread.session() is after


def test_a_session_that_rested_for_a_lease_is_renewed(
    thread: OneThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers and firewalls end what is silent for long."""
    before = thread.session()
    later = clock.monotonic() + LEASE.total_seconds() + 1
    monkeypatch.setattr(clock, "monotonic", lambda: later)
    after = thread.session()
    assert after is not before
    assert thread.session() is after
