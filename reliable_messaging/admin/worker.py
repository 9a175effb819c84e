from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import clock
from ..models import Worker
from .read_only import ReadOnlyAdmin

STALE_AFTER = timedelta(seconds=60)


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = (
        "host",
        "pid",
        "alive",
        "in_flight",
        "shown_queues",
        "version",
        "started_at",
        "heartbeat_at",
    )
    ordering = ("-heartbeat_at",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any, Any]:
        silent_for: Any = clock.now() - F("heartbeat_at")
        rows: QuerySet[Any, Any] = super().get_queryset(request).annotate(silent_for=silent_for)
        return rows

    @admin.display(description=_("queues"))
    def shown_queues(self, row: Any) -> str:
        return gettext("all") if row.queues is None else ", ".join(row.queues)

    @admin.display(description=_("alive"), boolean=True)
    def alive(self, row: Any) -> bool:
        return bool(row.silent_for < STALE_AFTER)
