"""The servers of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import Error, connections

from tests.faults import own_mariadb, own_postgres, pgbouncer
from tests.faults.oracle import Oracle
from tests.faults.result import Result
from tests.faults.server import Server
from tests.faults.servers import OwnMariaDB, OwnPostgres, PgBouncer, where_available
from tests.workers import Start

OWN = (OwnPostgres, OwnMariaDB)


@pytest.fixture(autouse=True)
def database_access(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield
        connections.close_all()


def skip_unless_available(kind: type[Server]) -> None:
    if reason := kind.unavailable():
        pytest.skip(reason)


@pytest.mark.parametrize("kind", OWN)
def test_an_own_server_survives_a_crash(kind: type[OwnPostgres | OwnMariaDB], start: Start) -> None:
    """Sessions end without a word, what was committed is still there, and a worker process uses it.
    The alias is put back at the end; no process and no file is left."""
    skip_unless_available(kind)
    before = dict(connections.databases[kind.alias])
    with kind() as server:
        with server.standing_in() as using:
            oracle = Oracle(using)
            oracle.produce(20)
            victim = server.pid
            server.restart_immediately()
            assert server.pid != victim
            assert not is_running(victim)
            with pytest.raises(Error), connections[using].cursor() as cursor:
                cursor.execute("SELECT 1")
            worker = start(using, "--burst", "--verbosity", "0", environment=server.environment)
            assert worker.wait() == 0
            oracle.result("own server").check()
        last = server.pid
    assert connections.databases[kind.alias] == before
    assert not is_running(last)
    assert not server.directory.exists()


def test_pgbouncer_gives_one_session_to_many_clients() -> None:
    """Transaction mode: two clients of a pool of one take turns on the same server session."""
    skip_unless_available(PgBouncer)
    import psycopg

    server = connections["postgres"].settings_dict
    with PgBouncer(default_pool_size=1) as bouncer:
        where = {"host": "127.0.0.1", "port": bouncer.port, "user": server["USER"], "dbname": server["NAME"]}
        with psycopg.connect(**where) as one, psycopg.connect(**where) as other:
            first = one.execute("SELECT pg_backend_pid()").fetchone()
            one.commit()
            assert other.execute("SELECT pg_backend_pid()").fetchone() == first
        pid = bouncer.pid
    assert not is_running(pid)


def test_the_binaries_of_the_wheel_serve_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no PostgreSQL."""
    skip_unless_available(OwnPostgres)
    found = own_postgres._from_the_wheel()
    assert found is not None
    assert "pginstall" in str(found)
    monkeypatch.setattr(own_postgres, "_binaries", lambda: found)
    with OwnPostgres(max_connections=7) as server, server.standing_in() as using:
        with connections[using].cursor() as cursor:
            cursor.execute("SHOW max_connections")
            assert cursor.fetchone() == ("7",)
        server.restart_immediately()


@pytest.mark.parametrize("kind", [*OWN, PgBouncer])
def test_what_is_not_installed_is_said(kind: type[Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that names what is missing, for the skip."""
    for module in (own_mariadb, pgbouncer):
        monkeypatch.setattr(module, "find_program", lambda *a: None)
    monkeypatch.setattr(own_postgres, "_binaries", lambda: None)
    assert "installed" in (kind.unavailable() or "")


def test_a_scenario_without_its_server_is_no_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the long run: a line says why."""

    def scenario(using: str, *, seed: int) -> Result:
        return Result(scenario=f"seed {seed}", database=using)

    for reason in (None, "pgbouncer is not installed"):
        monkeypatch.setattr(PgBouncer, "unavailable", lambda reason=reason: reason)
        found = where_available(scenario, {"postgres": PgBouncer})(using="postgres", seed=3)
        assert found == ([] if reason else Result(scenario="seed 3", database="postgres"))
    assert "scenario is not run on postgres: pgbouncer is not installed" in capsys.readouterr().out


def test_a_server_that_ends_at_once_says_why() -> None:
    """Its own words are in the error, and its directory is gone."""
    skip_unless_available(OwnPostgres)
    server = OwnPostgres(no_such_setting=1)
    with pytest.raises(AssertionError, match="no_such_setting"):
        server.__enter__()
    assert not server.directory.exists()


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
