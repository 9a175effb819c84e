from __future__ import annotations

import signal
from typing import Any

from .database_server import DatabaseServer
from .server import HOST, find_program

SMALL = {"innodb_buffer_pool_size": "32M", "innodb_log_file_size": "16M"}


class OwnMariaDB(DatabaseServer):
    alias = "mariadb"
    user = "root"
    users = ("mysql",)
    crash_signal = signal.SIGKILL

    @classmethod
    def unavailable(cls) -> str | None:
        for name in ("mariadb-install-db", "mariadbd"):
            if find_program(name) is None:
                return f"MariaDB's {name} is not installed."
        return cls._not_configured()

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"TEST_MARIADB_USER": self.user, "TEST_MARIADB_PASSWORD": ""}

    def session(self) -> Any:
        import MySQLdb

        return MySQLdb.connect(host=HOST, port=self.port, user=self.user, connect_timeout=5)

    def _prepare(self) -> None:
        self._run(
            _program("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        )

    def _command(self) -> list[str]:
        places = {
            "datadir": self.directory / "data",
            "socket": self.directory / "socket",
            "pid-file": self.directory / "pid",
            "bind-address": HOST,
            "port": self.port,
        }
        options = {**places, **SMALL, **self.settings}
        return [_program("mariadbd"), "--no-defaults", *(f"--{name}={v}" for name, v in options.items())]

    def _connect(self) -> None:
        self.session().close()

    def _create_database(self, name: str) -> None:
        session = self.session()
        try:
            session.cursor().execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        finally:
            session.close()


def _program(name: str) -> str:
    found = find_program(name)
    assert found is not None
    return found
