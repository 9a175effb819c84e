"""Text columns that keep exactly what they are given, on every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.db import models

S = TypeVar("S")
G = TypeVar("G")

if TYPE_CHECKING:
    from django.db.models import CharField, TextField
else:
    # Django's fields take type arguments only in their stubs.
    class CharField(models.CharField):
        def __class_getitem__(cls, _arguments: Any) -> Any:
            return cls

    class TextField(models.TextField):
        def __class_getitem__(cls, _arguments: Any) -> Any:
            return cls


class ExactCharField(CharField[S, G]):
    """A CharField compared byte for byte.

    MariaDB's and MySQL's default collations hold 'abc', 'ABC' and 'abc ' to be equal: two
    topics, or two deduplication keys, would become one.
    """

    def db_parameters(self, connection: Any) -> Any:
        return {**super().db_parameters(connection), "collation": _byte_collation(connection)}


class ExactTextField(TextField[S, G]):
    """A TextField that takes all of Unicode, also where the database's default is a 3-byte utf8."""

    def db_parameters(self, connection: Any) -> Any:
        return {**super().db_parameters(connection), "collation": _byte_collation(connection)}


def _byte_collation(connection: Any) -> str | None:
    # PostgreSQL and SQLite compare bytes by default. Collations have vendor names: no feature flag tells.
    if connection.vendor != "mysql":
        return None
    return "utf8mb4_nopad_bin" if connection.mysql_is_mariadb else "utf8mb4_0900_bin"
