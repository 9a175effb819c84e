from __future__ import annotations

from typing import Any

from django.db.models import Field, QuerySet

from ..models import WorkItem


def rows_of(model: type[WorkItem], using: str) -> QuerySet[Any, Any]:
    """Every row of the table, whatever default manager a subclass may have."""
    rows: QuerySet[Any, Any] = model._base_manager.using(using)
    return rows


def field_of(model: type[WorkItem], name: str) -> Field[Any, Any]:
    field = model._meta.get_field(name)
    assert isinstance(field, Field)
    return field
