"""After each message: connections that it spoilt are closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections, transaction

from reliable_messaging.workers.connections import clean_up_connections
from tests.sessions import in_session

ALIAS = "other"


@pytest.fixture(autouse=True)
def unblocked(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield


def is_kept_after(spoil: Callable[[Any], object]) -> bool:
    """Whether a connection outlives the cleaning up, in a thread of its own."""

    def work() -> bool:
        connection = connections[ALIAS]
        connection.ensure_connection()
        session = connection.connection
        spoil(connection)
        clean_up_connections()
        assert not connection.in_atomic_block
        return connection.connection is session

    return in_session(work).result(timeout=20)


def run(connection: Any, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def test_a_tidy_connection_is_kept() -> None:
    """To connect for each message would cost more than the message."""
    assert is_kept_after(lambda connection: run(connection, "SELECT 1"))


def test_a_block_that_was_never_left_is_closed() -> None:
    """The next message would run inside it."""
    assert not is_kept_after(lambda connection: transaction.atomic(using=ALIAS).__enter__())


def test_so_it_is_where_the_project_has_turned_autocommit_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """There an open block does not show in the connection's autocommit."""
    monkeypatch.setitem(connections.settings[ALIAS], "AUTOCOMMIT", False)
    assert is_kept_after(lambda connection: run(connection, "SELECT 1"))
    assert not is_kept_after(lambda connection: transaction.atomic(using=ALIAS).__enter__())


def test_a_transaction_that_was_begun_past_django_is_closed() -> None:
    """The next message would run inside it, and nobody would commit."""
    assert not is_kept_after(lambda connection: run(connection, "BEGIN"))


def test_a_connection_with_autocommit_off_is_closed() -> None:
    """What the next message writes would never be committed."""
    assert not is_kept_after(lambda connection: connection.set_autocommit(False))
