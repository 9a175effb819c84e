from __future__ import annotations

from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import outbox
from ..exceptions import Undeliverable
from ..models import Failure, OutboxMessage, Status
from ..workqueue import WorkQueue
from .display import failures_list, json_text, preformatted
from .filters import QueueFilter, TopicFilter, TroubleFilter
from .work_item import WorkItemAdmin


@admin.register(OutboxMessage)
class OutboxMessageAdmin(WorkItemAdmin):
    work_queue = outbox.queue
    list_display = ("topic", "state", "queue", "due_at", "attempts", "short_error", "id")
    list_display_links = ("topic", "id")
    list_filter = ("status", TroubleFilter, QueueFilter, TopicFilter)
    search_fields = ("id", "correlation_id")
    search_help_text = _("A message id or a correlation id, whole")
    ordering = ("-id",)
    actions = ("retry_now", "requeue", "cancel")
    fieldsets = (
        (None, {"fields": ("id", "topic", "state", "queue", "priority", "shown_payload", "shown_headers")}),
        (
            _("Attempts"),
            {
                "fields": (
                    "attempts",
                    "failures",
                    "max_attempts",
                    "transient_failures",
                    "first_failed_at",
                    "crashes",
                    "shown_failures",
                    "shown_result",
                )
            },
        ),
        (_("When"), {"fields": ("created_at", "due_at", "last_attempt_at", "finished_at", "expires_at")}),
        (_("Claim"), {"fields": ("claimed_by", "leased_until")}),
        (_("Origin"), {"fields": ("correlation_id", "causation_id", "dedup_key")}),
    )

    # Showing

    @admin.display(description=_("status"), ordering="status")
    def state(self, row: OutboxMessage) -> str:
        """The status; of a ready message also whether it waits for a retry, or for a handler."""
        troubled = row.failures or row.transient_failures or row.crashes
        if row.status != Status.READY or not troubled:
            return str(row.get_status_display())
        undeliverable = Undeliverable.__name__ in row.last_error.partition(":")[0]
        return gettext("undeliverable") if undeliverable else gettext("retrying")

    @admin.display(description=_("last error"))
    def short_error(self, row: OutboxMessage) -> str:
        return row.last_error[:80]

    @admin.display(description=_("payload"))
    def shown_payload(self, row: OutboxMessage) -> SafeString:
        return json_text(row.payload)

    @admin.display(description=_("headers"))
    def shown_headers(self, row: OutboxMessage) -> SafeString:
        return preformatted("\n".join(f"{name}: {value}" for name, value in row.headers.items()) or "-")

    @admin.display(description=_("result"))
    def shown_result(self, row: OutboxMessage) -> SafeString:
        return SafeString("-") if row.result is None else json_text(row.result)

    @admin.display(description=_("what went wrong"))
    def shown_failures(self, row: OutboxMessage) -> SafeString:
        rows = Failure._base_manager.using(row._state.db).filter(item_id=row.pk)
        return failures_list(rows.order_by("-last_at"))

    # Finding

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[OutboxMessage], search_term: str
    ) -> tuple[QuerySet[OutboxMessage], bool]:
        """By equality, which the indexes answer; Django's own icontains would read every row."""
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            return queryset.filter(pk=UUID(term)) | queryset.filter(correlation_id=term), False
        except ValueError:
            return queryset.filter(correlation_id=term), False

    # Acting

    @admin.action(description=_("Retry now: make waiting messages due"), permissions=["retry"])
    def retry_now(self, request: HttpRequest, queryset: QuerySet[OutboxMessage]) -> None:
        self.act(request, queryset, WorkQueue.retry_now, gettext("Retried now"))

    @admin.action(description=_("Requeue dead, expired or cancelled messages"), permissions=["requeue"])
    def requeue(self, request: HttpRequest, queryset: QuerySet[OutboxMessage]) -> None:
        self.act(request, queryset, WorkQueue.requeue, gettext("Requeued"))

    @admin.action(description=_("Cancel waiting messages"), permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[OutboxMessage]) -> None:
        self.act(request, queryset, WorkQueue.cancel, gettext("Cancelled"))

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "retry")

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "requeue")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "cancel")
