from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import jobs
from ..models import JobRun, OutboxMessage, RunOutcome, Status
from ..workqueue import WorkQueue
from .display import json_text, preformatted
from .work_item import WorkItemAdmin


class OutcomeFilter(admin.SimpleListFilter):
    """Django's own offers no way to those that have none yet."""

    title, parameter_name = _("outcome"), "outcome"
    open = "open"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(self.open, _("not ended")), *((str(value), words) for value, words in RunOutcome.choices)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
        if self.value() == self.open:
            return queryset.filter(outcome__isnull=True)
        outcomes = {str(value): value for value in RunOutcome.values}
        wanted = outcomes.get(self.value() or "")
        return queryset if wanted is None else queryset.filter(outcome=wanted)


@admin.register(JobRun)
class JobRunAdmin(WorkItemAdmin):
    work_queue = jobs.queue
    list_display = ("job", "scheduled_for", "state", "manual", "started_at", "duration", "short_error", "id")
    list_display_links = ("job", "id")
    list_filter = (OutcomeFilter,)
    search_fields = ("job", "id")
    search_help_text = _("The name of a job, or the id of a run, whole")
    ordering = ("-id",)
    actions = ("cancel",)
    fieldsets = (
        (None, {"fields": ("id", "job", "topic", "scheduled_for", "state", "manual", "shown_payload")}),
        (_("How it ended"), {"fields": ("shown_output", "shown_error", "attempts", "message")}),
        (_("When"), {"fields": ("created_at", "due_at", "started_at", "ended_at", "duration")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any, Any]:
        message = OutboxMessage._base_manager.filter(pk=OuterRef("pk"))
        # A page of the list must not read fifty payloads, which may have a megabyte each.
        light = super().get_queryset(request).defer("payload", "result", "headers")
        rows: QuerySet[Any, Any] = light.annotate(message_status=Subquery(message.values("status")[:1]))
        return rows

    # Showing

    @admin.display(description=_("state"), ordering="outcome")
    def state(self, row: Any) -> str:
        return state_of(row.outcome, held=row.held, message_status=row.message_status)

    @admin.display(description=_("manual"), boolean=True)
    def manual(self, row: JobRun) -> bool:
        return row.is_manual

    @admin.display(description=_("error"))
    def short_error(self, row: JobRun) -> str:
        return row.last_error[:80]

    @admin.display(description=_("payload"))
    def shown_payload(self, row: JobRun) -> SafeString:
        return json_text(row.payload)

    @admin.display(description=_("output"))
    def shown_output(self, row: JobRun) -> SafeString:
        return SafeString("-") if row.result is None else json_text(row.result)

    @admin.display(description=_("error"))
    def shown_error(self, row: JobRun) -> SafeString:
        return preformatted(row.last_error) if row.last_error else SafeString("-")

    @admin.display(description=_("message"))
    def message(self, row: Any) -> SafeString:
        """It has the same id, while it is there."""
        if row.message_status is None or not self.admin_site.is_registered(OutboxMessage):
            return SafeString("-")
        url = reverse(f"{self.admin_site.name}:reliable_messaging_outboxmessage_change", args=[row.pk])
        return format_html('<a href="{}">{}</a>', url, row.pk)

    # Finding

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[JobRun], search_term: str
    ) -> tuple[QuerySet[JobRun], bool]:
        """By equality, which the indexes answer; Django's own icontains would read every row."""
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            return queryset.filter(Q(pk=UUID(term)) | Q(job=term)), False
        except ValueError:
            return queryset.filter(job=term), False

    # Acting

    @admin.action(description=_("Cancel runs that have not started"), permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[JobRun]) -> None:
        self.act(request, queryset, _cancel, gettext("Cancelled"))

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "cancel")


def state_of(outcome: int | None, *, held: bool, message_status: int | None) -> str:
    """In words: how it ended, or what it waits for."""
    if outcome is not None:
        return str(RunOutcome(outcome).label)
    if held:
        return gettext("waiting for the run before it")
    return gettext("running") if message_status == Status.CLAIMED else gettext("pending")


def _cancel(queue: WorkQueue[Any], ids: list[UUID]) -> list[Any]:
    """A run, or the message that it has become."""
    runs = JobRun._base_manager.using(queue.alias).filter(pk__in=ids).only("pk").order_by("pk")
    return [run for run in runs if jobs.cancel(run.pk, using=queue.alias)]
