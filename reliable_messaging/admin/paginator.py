from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.paginator import Paginator

if TYPE_CHECKING:
    AnyPaginator = Paginator[Any]
else:
    AnyPaginator = Paginator


class BoundedPaginator(AnyPaginator):
    """Counts no further than this many rows: an exact COUNT of a big table takes seconds,
    and nobody turns to page 200."""

    limit = 10_000

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows[: self.limit].count())
