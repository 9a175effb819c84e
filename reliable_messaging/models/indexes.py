"""An index over only those rows that a query can want."""

from __future__ import annotations

from typing import Any

from django.db import models

NOTHING = "SELECT 1"
"""The schema editor executes whatever an index answers, so "no index" has to be a statement."""


class PartialIndex(models.Index):
    """Partial where the database has partial indexes, so its size follows the unfinished work
    and not the history. Elsewhere (MariaDB, MySQL) it covers ``full_fields``, which start with
    the status; without ``full_fields`` it is left out there.

    The condition is kept from Django's own ``condition``, which databases without partial
    indexes answer with a full index of the wrong columns and a warning.
    """

    def __init__(self, *, where: models.Q, full_fields: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.where = where
        self.full_fields = tuple(full_fields)

    def deconstruct(self) -> Any:
        path, args, kwargs = super().deconstruct()
        return path, args, {**kwargs, "where": self.where, "full_fields": self.full_fields}

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        if schema_editor.connection.features.supports_partial_indexes:
            index = models.Index(fields=self.fields, name=self.name, condition=self.where)
        elif self.full_fields:
            index = models.Index(fields=self.full_fields, name=self.name)
        else:
            return NOTHING
        return index.create_sql(model, schema_editor, using=using, **kwargs)

    def remove_sql(self, model: Any, schema_editor: Any, **kwargs: Any) -> Any:
        if schema_editor.connection.features.supports_partial_indexes or self.full_fields:
            return super().remove_sql(model, schema_editor, **kwargs)
        return NOTHING


class PartialUniqueIndex(PartialIndex):
    """Unique among the rows that it covers. Where there are no partial indexes it covers all of them, and
    only NULLs may be equal: so the condition must be that the column is not NULL.

    A full one would get an entry, again a NULL, at each change of each row."""

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        is_partial = schema_editor.connection.features.supports_partial_indexes
        condition = self.where if is_partial else None
        return models.UniqueConstraint(fields=self.fields, name=self.name, condition=condition).create_sql(
            model, schema_editor
        )
