"""What the measures ask of a database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

from django.apps import apps
from django.core.management import call_command
from django.db import connections

FILLED = "filled"
"""The alias of the database that holds many rows beside those that are drained."""
ALIASES = ("default", FILLED)


class Database(ABC):
    title: ClassVar[str]
    has_fast_path: ClassVar[bool] = False
    """Is there a path of its own for it, beside the portable one?"""
    notifies: ClassVar[bool] = False
    """Can it wake a sleeping session?"""
    copies: ClassVar[bool] = False
    """Has it COPY?"""
    measures: ClassVar[tuple[str, ...]] = (
        *("drain", "atomic", "enqueue", "latency", "idle", "history"),
        *("timers", "lateness", "leases"),
    )
    """Those that make sense here, in their order."""
    has_targets: ClassVar[bool] = False
    """Was anything promised? If not, it is measured the same way, and for a shorter time."""
    not_waiting_for_disk: ClassVar[tuple[str, ...]] = ()
    """Statements after which a session does not wait for the disk at its commits."""
    plain_lot: ClassVar[int] = 2
    """How many times the worker's messages the plain loop gets, which is so much faster."""
    many: ClassVar[int] = 100_000
    """How many rows are many: kept beside the drained ones, or drained by one worker."""

    @contextmanager
    def throwaway(self) -> Iterator[None]:
        """Every alias made at the start, dropped at the end."""
        with ExitStack() as stack:
            for alias in ALIASES:
                stack.callback(self.drop, alias)
                self.create(alias)
                call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
            stack.callback(connections.close_all)
            yield

    def execute(self, alias: str, *statements: str) -> None:
        with connections[alias].cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def name_of(self, alias: str) -> str:
        return str(connections[alias].settings_dict["NAME"])

    @abstractmethod
    def create(self, alias: str) -> None: ...

    @abstractmethod
    def drop(self, alias: str) -> None:
        """Also when it is only half made."""

    @abstractmethod
    def empty(self, alias: str = "default") -> None:
        """No rows in any table."""

    @abstractmethod
    def settle(self, alias: str = "default") -> None:
        """What the server would do sooner or later, done now, so that it does not fall into one side."""

    @abstractmethod
    def numbers(self, first: int, last: int) -> str:
        """SQL of a table with one column, n, from the first to the last."""

    @abstractmethod
    def numbered_id(self, prefix: str) -> str:
        """SQL of the id that ends in n, as twelve hexadecimal digits, after these twenty."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """The server's version, and those of its settings that decide how fast it is."""

    def transactions(self) -> float | None:
        """Ended so far in the default database, by anybody; None where nobody counts them."""
        return None


def tables(alias: str) -> list[str]:
    quote = connections[alias].ops.quote_name
    return [quote(model._meta.db_table) for model in apps.get_models()]
