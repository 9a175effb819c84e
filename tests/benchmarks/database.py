"""The benchmark's own database: made at the start, dropped at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.apps import apps
from django.core.management import call_command
from django.db import connection, connections
from psycopg import sql

MAINTENANCE = "postgres"
"""A database that is always there: to make ours from, and to watch ours from outside."""


def connect(name: str | None = None, **options: Any) -> psycopg.Connection[Any]:
    """A plain connection in autocommit, to the benchmark's database unless another is named."""
    given = connections["default"].settings_dict
    parameters = {
        "host": given["HOST"],
        "port": given["PORT"] or None,
        "user": given["USER"],
        "password": given["PASSWORD"] or None,
        "dbname": name or given["NAME"],
    }
    return psycopg.connect(autocommit=True, connect_timeout=10, **parameters, **options)


@contextmanager
def throwaway_database() -> Iterator[None]:
    name = sql.Identifier(connections["default"].settings_dict["NAME"])
    with connect(MAINTENANCE) as outside:
        outside.execute(sql.SQL("CREATE DATABASE {}").format(name))
    try:
        call_command("migrate", run_syncdb=True, verbosity=0)
        yield
    finally:
        connections.close_all()
        with connect(MAINTENANCE) as outside:
            # FORCE: a process that had to be killed may not be noticed by the server yet.
            outside.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def empty_tables() -> None:
    tables = ", ".join(connection.ops.quote_name(model._meta.db_table) for model in apps.get_models())
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {tables}")


def settle_tables() -> None:
    """What autovacuum would do sooner or later, done now, so that it does not fall into one side."""
    with connection.cursor() as cursor:
        for model in apps.get_models():
            cursor.execute(f"VACUUM (ANALYZE) {connection.ops.quote_name(model._meta.db_table)}")
