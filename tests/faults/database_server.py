"""A database server of the tests' own, which an alias can be pointed to."""

from __future__ import annotations

import signal
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from django.core.management import call_command
from django.db import connections

from tests.services import DATABASE_NAME, reached_at

from .server import HOST, Server


class DatabaseServer(Server):
    alias: ClassVar[str]
    user: ClassVar[str]
    crash_signal: ClassVar[signal.Signals]

    @property
    def environment(self) -> dict[str, str]:
        return reached_at(self.alias, self.address)

    @abstractmethod
    def session(self) -> Any:
        """A connection of the driver's own, with no database chosen; the caller closes it."""

    def crash(self) -> None:
        """No session is told, nothing is tidied up; ``start()`` finds what a crash leaves."""
        self.end(self.crash_signal)

    def restart_immediately(self) -> None:
        self.crash()
        self.start()

    @contextmanager
    def standing_in(self) -> Iterator[str]:
        """In this process too, the alias means this server, with its database made and migrated."""
        settings = connections.databases[self.alias]
        before = dict(settings)
        elsewhere = {"HOST": HOST, "PORT": self.port, "USER": self.user, "PASSWORD": ""}
        self._forget_connection()
        settings.update(elsewhere)
        try:
            self._create_database(DATABASE_NAME)
            call_command("migrate", database=self.alias, verbosity=0, interactive=False)
            yield self.alias
        finally:
            self._forget_connection()
            settings.update(before)

    def _forget_connection(self) -> None:
        """The next one is new, and asks its server anew what it can do."""
        connections[self.alias].close()
        del connections[self.alias]

    @abstractmethod
    def _create_database(self, name: str) -> None: ...

    @classmethod
    def _not_configured(cls) -> str | None:
        return None if cls.alias in connections.databases else f"the alias {cls.alias} is not there"
