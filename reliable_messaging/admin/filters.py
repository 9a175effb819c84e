from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ..registry import registry

LATEST_ROWS = 1000


class SeenValuesFilter(admin.SimpleListFilter):
    """Offers what the handlers declare and what the latest rows have. Django's own filter would
    read the whole table for its choices; any other value can still be given in the address."""

    column: str

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        latest = model_admin.get_queryset(request).order_by("-pk")[:LATEST_ROWS]
        seen = set(latest.values_list(self.column, flat=True))
        seen |= {getattr(handler, self.column) for handler in registry if not handler.is_for_dead_letters}
        if (chosen := self.value()) is not None:
            seen.add(chosen)
        return [(value, value) for value in sorted(seen)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
        return queryset if self.value() is None else queryset.filter(**{self.column: self.value()})


class QueueFilter(SeenValuesFilter):
    title, parameter_name, column = _("queue"), "queue", "queue"


class TopicFilter(SeenValuesFilter):
    title, parameter_name, column = _("topic"), "topic", "topic"
