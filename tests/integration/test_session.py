"""The connections of a worker: each side gives up on the other before a lease ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connections

from reliable_messaging.workers.session import SessionLimits, handler_limits, private_connection
from tests.sessions import in_session
from tests.workers import handling

MINUTE = timedelta(seconds=60)


def limits(lease: timedelta = MINUTE, **options: Any) -> SessionLimits:
    return SessionLimits(lease=lease, **{"idle_in_transaction": lease, "read": lease, **options})


@pytest.mark.parametrize("seconds", [1, 10, 60])
def test_the_probes_of_a_silent_connection_end_within_the_lease(seconds: int) -> None:
    """On both sides. A shorter lease than three seconds cannot be met: TCP counts in seconds."""
    lease = timedelta(seconds=seconds)
    options = limits(lease).options("postgresql")
    assert options["keepalives_idle"] >= 1
    assert options["keepalives_interval"] >= 1
    taken = options["keepalives_idle"] + options["keepalives_count"] * options["keepalives_interval"]
    assert taken < max(seconds, 5)
    assert 1000 <= options["tcp_user_timeout"] <= max(1000, seconds * 1000)


def test_a_read_may_take_a_moment_however_short_the_lease() -> None:
    """MariaDB's driver gives up by this; a busy server needs more than a second now and then."""
    assert limits(timedelta(seconds=1)).options("mysql")["read_timeout"] == 5
    assert limits(MINUTE).options("mysql")["read_timeout"] == 60
    assert "read_timeout" not in limits(read=None).options("mysql"), "a handler may take its time"


def test_a_handler_may_keep_its_transaction_waiting() -> None:
    """As long as the longest timeout of all handlers: the server must not cut it off before."""
    with handling("test.patient", print, timeout=timedelta(hours=3)):
        assert handler_limits(MINUTE).idle_in_transaction == timedelta(hours=3)
    assert handler_limits(timedelta(days=1)).idle_in_transaction == timedelta(days=1)


def test_the_server_is_told(row_locking: str) -> None:
    """Each time a session begins, also after a lost connection: else a vanished host keeps its locks."""
    told: list[list[str]] = []

    def connect_twice() -> None:
        with private_connection(row_locking, limits()):
            for _ in range(2):
                connection = connections[row_locking]
                connection.close()
                connection.queries_log.clear()
                connection.force_debug_cursor = True
                connection.ensure_connection()
                told.append([query["sql"] for query in connection.queries_log])

    in_session(connect_twice).result(timeout=20)
    words = {"postgres": "tcp_keepalives_idle", "mariadb": "idle_transaction_timeout"}[row_locking]
    assert [any(words in sql for sql in one) for one in told] == [True, True]


def test_the_projects_own_options_go_first(row_locking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sets connect_timeout in DATABASES has a reason."""

    def in_thread() -> int:
        with private_connection(row_locking, limits()):
            return int(connections[row_locking].settings_dict["OPTIONS"]["connect_timeout"])

    with monkeypatch.context() as patch:
        patch.setitem(connections.settings[row_locking]["OPTIONS"], "connect_timeout", 3)
        assert in_session(in_thread).result(timeout=10) == 3


def test_the_shared_connection_is_given_back(row_locking: str) -> None:
    """Who calls a worker from a program of their own goes on with their own connection, and the private
    one is closed, whatever became of it."""

    def in_thread() -> tuple[bool, bool, bool]:
        shared = connections[row_locking]
        with pytest.raises(ZeroDivisionError), private_connection(row_locking, limits()):
            private = connections[row_locking]
            private.ensure_connection()
            raise ZeroDivisionError
        return private is not shared, connections[row_locking] is shared, private.connection is None

    assert in_session(in_thread).result(timeout=10) == (True, True, True)
