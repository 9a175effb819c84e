from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ..exceptions import Undeliverable
from ..models import Status
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


class TroubleFilter(admin.SimpleListFilter):
    """Messages that wait, but not only for their time."""

    title, parameter_name = _("trouble"), "trouble"
    kinds = {
        "retrying": (_("retrying after its own failures"), Q(failures__gt=0)),
        "infrastructure": (_("infrastructure failures"), Q(transient_failures__gt=0)),
        "undeliverable": (_("undeliverable"), Q(last_error__contains=f".{Undeliverable.__name__}:")),
        "last-attempt": (_("one failure from dead"), Q(failures__gte=F("max_attempts") - 1, failures__gt=0)),
        "suspect": (_("suspects"), Q(crashes__gt=0)),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(name, words) for name, (words, _condition) in self.kinds.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
        if self.value() not in self.kinds:
            return queryset
        _words, condition = self.kinds[self.value() or ""]
        return queryset.filter(condition, status=Status.READY)
