"""Writing to rows whose ids are known. The ORM would compile a list of ids one by one, which takes longer
than the database takes to find them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models.sql import UpdateQuery

from .. import clock
from ..models import Status, WorkItem
from .rows import field_of

Sql = tuple[str, list[Any]]


def update(model: type[WorkItem], using: str, ids: Sequence[UUID], values: Mapping[str, Any]) -> int:
    """Returns how many there were. ``values`` may be expressions, as for ``QuerySet.update``."""
    return _update(model, using, values, _ids(model, using, ids))


def update_claimed(
    model: type[WorkItem], using: str, ids: Sequence[UUID], token: UUID | None, values: Mapping[str, Any]
) -> int:
    """The same, of those that are claimed with this token."""
    return _update(model, using, values, _claimed(model, using, ids, token))


def delete_claimed(model: type[WorkItem], using: str, ids: Sequence[UUID], token: UUID | None) -> int:
    where, params = _claimed(model, using, ids, token)
    return _execute(using, f"DELETE FROM {_table(model, using)} WHERE {where}", params)


def delete(model: type[WorkItem], using: str, ids: Sequence[UUID]) -> int:
    where, params = _ids(model, using, ids)
    return _execute(using, f"DELETE FROM {_table(model, using)} WHERE {where}", params)


def _update(model: type[WorkItem], using: str, values: Mapping[str, Any], condition: Sql) -> int:
    where, params = condition
    assignments, assigned = _assignments(model, using, values)
    return _execute(
        using, f"UPDATE {_table(model, using)} SET {assignments} WHERE {where}", [*assigned, *params]
    )


def _claimed(model: type[WorkItem], using: str, ids: Sequence[UUID], token: UUID | None) -> Sql:
    among, params = _ids(model, using, ids)
    field, connection = field_of(model, "owner_token"), connections[using]
    # + 0, or a planner may take the index of leases and walk it all, with the entries of what was
    # claimed before. It is to look the ids up.
    fence = f"{among} AND status + 0 = {Status.CLAIMED.value} AND owner_token = %s"
    return fence, [*params, field.get_db_prep_value(token, connection)]


def _ids(model: type[WorkItem], using: str, ids: Sequence[UUID]) -> Sql:
    if not ids:
        return "1 = 0", []
    connection = connections[using]
    if connection.vendor == "postgresql":  # one parameter instead of many; the only one that has arrays
        return "id = ANY(%s::uuid[])", ["{" + ",".join([pk.hex for pk in ids]) + "}"]
    field = field_of(model, "id")
    prepared = [field.get_db_prep_value(pk, connection) for pk in ids]
    return f"id IN ({', '.join(['%s'] * len(prepared))})", prepared


def _assignments(model: type[WorkItem], using: str, values: Mapping[str, Any]) -> Sql:
    connection = connections[using]
    assignments: list[str] = []
    params: list[Any] = []
    for name, value in values.items():
        if hasattr(value, "resolve_expression"):
            place, its_params = _compiled(model, using, value, clock.travelled())
            params += its_params
        else:
            place = "%s"
            params.append(field_of(model, name).get_db_prep_save(value, connection))
        assignments.append(f"{connection.ops.quote_name(name)} = {place}")
    return ", ".join(assignments), params


@lru_cache(maxsize=64)
def _compiled(
    model: type[WorkItem], using: str, expression: Any, _travelled: timedelta
) -> tuple[str, tuple[Any, ...]]:
    """Worked out once: at each batch that would cost as much as the database's part."""
    query = UpdateQuery(model)
    resolved = expression.resolve_expression(query, allow_joins=False, for_save=True)
    sql, params = query.get_compiler(using=using).compile(resolved)
    return sql, tuple(params)


def _table(model: type[WorkItem], using: str) -> str:
    return str(connections[using].ops.quote_name(model._meta.db_table))


def _execute(using: str, sql: str, params: list[Any]) -> int:
    with connections[using].cursor() as cursor:
        cursor.execute(sql, params)
        return int(cursor.rowcount)
