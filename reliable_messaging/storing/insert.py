"""One row, by one INSERT that also tells what the database worked out.

The ORM compiles a statement of thirty columns anew each time, which takes as long as the INSERT
itself. Here its text is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.db import connections
from django.db.models import Field
from django.db.models.sql import InsertQuery

from ..models import OutboxMessage
from .columns import FIELDS, FROM_DATABASE, Values, constants, insert_sql, quoted_columns, saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    sql: str
    constants: tuple[Any, ...]
    """The parameters that are the same for every row; they follow the row's own."""
    worked_out: tuple[Field[Any, Any], ...]
    """What the database works out."""


def insert(values: Values, alias: str) -> OutboxMessage:
    connection = connections[alias]
    places: list[tuple[str, str]] = []
    params: list[Any] = []
    for name, value in values.items():
        if hasattr(value, "resolve_expression"):
            place, its_params = _compiled(value, connection)
            params += its_params
        else:
            place = "%s"
            params.append(FIELDS[name].get_db_prep_save(value, connection))
        places.append((name, place))
    statement = _statement(alias, tuple(places))
    with connection.cursor() as cursor:
        cursor.execute(statement.sql, (*params, *statement.constants))
        found = _worked_out(statement, cursor, connection, values["id"])
    return saved({**values, **found}, alias)


@lru_cache(maxsize=128)  # bounded: on MariaDB a delay is part of the text
def _statement(alias: str, places: tuple[tuple[str, str], ...]) -> Statement:
    connection = connections[alias]
    given = dict(places)
    others = constants(connection, given=given)
    sql = insert_sql(given | dict.fromkeys(others, "%s"), connection)
    expressions = {name for name, place in places if place != "%s"}
    worked_out = [name for name in FIELDS if name in expressions or name in FROM_DATABASE - given.keys()]
    if worked_out and connection.features.can_return_columns_from_insert:
        sql += f" RETURNING {quoted_columns(worked_out, connection)}"
    return Statement(
        sql=sql,
        constants=tuple(others.values()),
        worked_out=tuple(FIELDS[name] for name in worked_out),
    )


def _compiled(expression: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
    query = InsertQuery(OutboxMessage)
    compiler = query.get_compiler(connection=connection)
    sql, params = compiler.compile(expression.resolve_expression(query, allow_joins=False, for_save=True))
    return sql, tuple(params)


def _worked_out(statement: Statement, cursor: Any, connection: Any, pk: Any) -> Values:
    fields = statement.worked_out
    if not fields:
        return {}
    if connection.features.can_return_columns_from_insert:
        return _converted(cursor.fetchone(), fields, connection)
    rows = OutboxMessage._base_manager.using(connection.alias).filter(pk=pk)
    found: Values = rows.values(*(field.attname for field in fields)).get()
    return found


def _converted(row: Any, fields: tuple[Field[Any, Any], ...], connection: Any) -> Values:
    """As the ORM reads them: SQLite answers with texts, MariaDB with naive times."""
    found = {}
    for field, value in zip(fields, row, strict=True):
        column = field.cached_col
        for convert in (*connection.ops.get_db_converters(column), *column.get_db_converters(connection)):
            value = convert(value, column, connection)
        found[field.attname] = value
    return found
