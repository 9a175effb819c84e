"""Servers of the tests' own: each says in ``unavailable()`` why it cannot be used here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .database_server import DatabaseServer
from .own_mariadb import OwnMariaDB
from .own_postgres import OwnPostgres
from .pgbouncer import PgBouncer
from .result import Result
from .server import Server

__all__ = ["OWN", "OwnMariaDB", "OwnPostgres", "PgBouncer", "where_available"]

OWN: dict[str, type[DatabaseServer]] = {"postgres": OwnPostgres, "mariadb": OwnMariaDB}


def where_available(
    scenario: Callable[..., Result], servers: Mapping[str, type[Server]]
) -> Callable[..., Result | list[Result]]:
    """For a long run: says in a line why it is not run, and is no row of the table then."""
    return partial(_run, scenario, servers)


def _run(
    scenario: Callable[..., Result], servers: Mapping[str, type[Server]], using: str, **arguments: Any
) -> Result | list[Result]:
    if reason := servers[using].unavailable():
        print(f"{scenario.__name__} is not run on {using}: {reason}", flush=True)
        return []
    return scenario(using, **arguments)
