from __future__ import annotations

from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import timers
from ..models import Timer
from ..workqueue import WorkQueue
from .display import json_text
from .work_item import WorkItemAdmin


@admin.register(Timer)
class TimerAdmin(WorkItemAdmin):
    work_queue = timers.queue
    list_display = ("topic", "name", "status", "due_at", "queue", "id")
    list_display_links = ("topic", "id")
    list_filter = ("status",)
    search_fields = ("name", "id")
    search_help_text = _("The name of a waiting timer, or an id, whole")
    ordering = ("-id",)
    actions = ("fire", "cancel")
    fieldsets = (
        (None, {"fields": ("id", "name", "topic", "status", "due_at", "shown_payload", "headers")}),
        (_("Its message"), {"fields": ("queue", "priority", "max_attempts", "time_to_live")}),
        (_("When"), {"fields": ("created_at", "finished_at")}),
        (_("Origin"), {"fields": ("correlation_id", "causation_id")}),
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Timer], search_term: str
    ) -> tuple[QuerySet[Timer], bool]:
        """By equality, which the indexes answer; Django's own icontains would read every row."""
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            return queryset.filter(pk=UUID(term)) | queryset.filter(name_slot=term), False
        except ValueError:
            return queryset.filter(name_slot=term), False

    @admin.display(description=_("payload"))
    def shown_payload(self, row: Timer) -> SafeString:
        return json_text(row.payload)

    @admin.action(description=_("Fire now: make waiting timers due"), permissions=["fire"])
    def fire(self, request: HttpRequest, queryset: QuerySet[Timer]) -> None:
        self.act(request, queryset, WorkQueue.retry_now, gettext("Due now"))

    @admin.action(description=_("Cancel waiting timers"), permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Timer]) -> None:
        self.act(request, queryset, WorkQueue.cancel, gettext("Cancelled"))

    def has_fire_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "fire")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "cancel")
