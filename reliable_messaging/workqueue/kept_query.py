"""A query of the ORM's that is compiled once and executed many times, with other marks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet

from ..models import WorkItem
from .lane import Mark
from .rows import field_of

SOME_MARK = Mark(datetime(1987, 6, 5, 4, 3, 2, 1, tzinfo=timezone.utc), UUID(int=0x1987_0605_0403_0201))
"""Stands in the query for the mark that will be given. No real row has this time or this id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptQuery:
    model: type[WorkItem]
    sql: str
    params: tuple[Any, ...]
    places: dict[int, str]
    """Which parameters are parts of the mark."""
    converters: dict[int, Any]
    """What Django does to the values of a column, and to which."""

    @classmethod
    def of(cls, rows: QuerySet[Any, Any]) -> KeptQuery:
        """Of a ``values_list`` in which SOME_MARK stands, or none."""
        compiler = rows.query.get_compiler(using=rows.db)
        sql, params = compiler.as_sql()
        stand_ins = _prepared(rows.model, rows.db, SOME_MARK).items()
        return cls(
            model=rows.model,
            sql=sql,
            params=tuple(params),
            places={at: name for at, value in enumerate(params) for name, part in stand_ins if value == part},
            converters=compiler.get_converters([column for column, *_ in compiler.select]),
        )

    def fetch(self, using: str, mark: Mark | None) -> list[tuple[Any, ...]]:
        params = list(self.params)
        if mark is not None:
            parts = _prepared(self.model, using, mark)
            for at, name in self.places.items():
                params[at] = parts[name]
        connection = connections[using]
        with connection.cursor() as cursor:
            cursor.execute(self.sql, params)
            rows = cursor.fetchall()
        return [self._converted(row, connection) for row in rows] if self.converters else list(rows)

    def _converted(self, row: tuple[Any, ...], connection: Any) -> tuple[Any, ...]:
        values = list(row)
        for at, (converters, column) in self.converters.items():
            for convert in converters:
                values[at] = convert(values[at], column, connection)
        return tuple(values)


def _prepared(model: type[WorkItem], using: str, mark: Mark) -> dict[str, Any]:
    """As the database takes them."""
    connection = connections[using]
    return {
        name: field_of(model, name).get_db_prep_value(getattr(mark, name), connection)
        for name in ("due_at", "id")
    }
