"""Servers of the tests' own: each says in ``unavailable()`` why it cannot be used here."""

from __future__ import annotations

from .own_mariadb import OwnMariaDB
from .own_postgres import OwnPostgres
from .pgbouncer import PgBouncer

__all__ = ["OwnMariaDB", "OwnPostgres", "PgBouncer"]
