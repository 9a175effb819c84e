"""The columns of a new row, as the model's fields tell them: which there are, and how they begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from ..models import OutboxMessage

Values = dict[str, Any]
"""What was worked out for one row; columns that are left out begin as every row does."""

FIELDS = {f.attname: f for f in OutboxMessage._meta.concrete_fields if not f.generated}
MADE_FOR_EACH = {name: f for name, f in FIELDS.items() if f.has_default() and callable(f.default)}
"""Columns whose default is made anew for each row, as the id is."""
FROM_DATABASE = frozenset(name for name, f in FIELDS.items() if f.has_db_default())
"""Columns whose default the database works out, as the times are."""
BEGINNING: Values = {
    name: f.get_default() for name, f in FIELDS.items() if name not in MADE_FOR_EACH.keys() | FROM_DATABASE
}
"""What every row has in the other columns."""

_NOT_NULL = tuple(name for name, value in BEGINNING.items() if value is not None)
_in_order = itemgetter(*FIELDS)


def complete(values: Values) -> Values:
    """The same, with the columns that are made for each row."""
    made = {name: f.get_default() for name, f in MADE_FOR_EACH.items() if name not in values}
    return {**made, **values}


def constants(connection: Any, *, given: Iterable[str] = ()) -> Values:
    """Columns that are written besides the given ones, ready for the database. Not those that begin
    as NULL: a column that is not named costs nothing."""
    return {
        name: FIELDS[name].get_db_prep_save(BEGINNING[name], connection)
        for name in _NOT_NULL
        if name not in given
    }


def quoted_columns(names: Iterable[str], connection: Any) -> str:
    return ", ".join(connection.ops.quote_name(FIELDS[name].column) for name in names)


def quoted_table(connection: Any) -> str:
    return str(connection.ops.quote_name(OutboxMessage._meta.db_table))


def insert_sql(places: Mapping[str, str], connection: Any) -> str:
    """The INSERT of the columns for which there is a placeholder or an expression."""
    columns, row = quoted_columns(places, connection), ", ".join(places.values())
    return f"INSERT INTO {quoted_table(connection)} ({columns}) VALUES ({row})"  # noqa: S608


def saved(values: Values, alias: str) -> OutboxMessage:
    """The instance of a row that is stored. All of its times must be known by now."""
    return OutboxMessage.from_db(alias, list(FIELDS), _in_order({**BEGINNING, **values}))
