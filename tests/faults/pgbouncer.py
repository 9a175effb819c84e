from __future__ import annotations

import os
import signal
from contextlib import ExitStack

from django.db import connections

from tests.services import address_of, reached_at

from .proxy import Proxy
from .server import HOST, Server, find_program

TRANSACTION_MODE = {"pool_mode": "transaction", "default_pool_size": 10, "max_client_conn": 200}


class PgBouncer(Server):
    """In front of the server of the alias ``postgres``, in transaction mode, as most people run it."""

    alias = "postgres"
    users = ("postgres", "pgserver")
    # It keeps nothing, and its later versions answer SIGTERM by waiting for every client to leave.
    stop_signal = signal.SIGKILL

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self._bridge = ExitStack()

    @classmethod
    def unavailable(cls) -> str | None:
        if find_program("pgbouncer") is None:
            return "pgbouncer is not installed (Debian: apt-get install pgbouncer)."
        return None if cls.alias in connections.databases else "the alias postgres is not there"

    @property
    def environment(self) -> dict[str, str]:
        return reached_at(self.alias, self.address)

    def _prepare(self) -> None:
        server = connections[self.alias].settings_dict
        options = {
            "listen_addr": HOST,
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": self.directory / "users",
            "ignore_startup_parameters": "extra_float_digits",
            **TRANSACTION_MODE,
            **self.settings,
        }
        lines = [f"{name} = {value}" for name, value in options.items()]
        host, port = self._target()
        self._write("users", f'"{server["USER"]}" "{server["PASSWORD"]}"\n')
        self._write(
            "ini", "\n".join(["[databases]", f"* = host={host} port={port}", "[pgbouncer]", *lines, ""])
        )

    def _target(self) -> tuple[str, int]:
        """The user that it runs as may not enter the directory of a unix socket; we may."""
        address = address_of(self.alias)
        if isinstance(address, str):
            proxy = self._bridge.enter_context(Proxy(address))
            return proxy.host, proxy.port
        return address

    def _clear(self) -> None:
        with self._bridge:
            super()._clear()

    def _command(self) -> list[str]:
        program = find_program("pgbouncer")
        assert program is not None
        return [program, str(self.directory / "ini")]

    def _connect(self) -> None:
        import psycopg

        server = connections[self.alias].settings_dict
        psycopg.connect(
            host=HOST, port=self.port, user=server["USER"], dbname="postgres", connect_timeout=5
        ).close()

    def _write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.write_text(text)
        path.chmod(0o600)
        if user := self._user():
            os.chown(path, user.pw_uid, user.pw_gid)
