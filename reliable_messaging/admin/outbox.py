from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_permission_codename
from django.db import router, transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from .. import outbox
from ..exceptions import Undeliverable
from ..message import Message
from ..models import Failure, OutboxMessage, Status
from ..workqueue import WorkQueue
from .display import failures_list, json_text, preformatted
from .filters import QueueFilter, TopicFilter, TroubleFilter
from .read_only import ReadOnlyAdmin


@admin.register(OutboxMessage)
class OutboxMessageAdmin(ReadOnlyAdmin):
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
        if row.status != Status.READY or not row.last_error:
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
        self._act(request, queryset, WorkQueue.retry_now, gettext("Retried now"))

    @admin.action(description=_("Requeue dead, expired or cancelled messages"), permissions=["requeue"])
    def requeue(self, request: HttpRequest, queryset: QuerySet[OutboxMessage]) -> None:
        self._act(request, queryset, WorkQueue.requeue, gettext("Requeued"))

    @admin.action(description=_("Cancel waiting messages"), permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[OutboxMessage]) -> None:
        self._act(request, queryset, WorkQueue.cancel, gettext("Cancelled"))

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "retry")

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "requeue")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "cancel")

    def _may(self, request: HttpRequest, action: str) -> bool:
        codename = get_permission_codename(action, self.opts)
        return bool(request.user.has_perm(f"{self.opts.app_label}.{codename}"))

    def _act(
        self,
        request: HttpRequest,
        queryset: QuerySet[OutboxMessage],
        verb: Callable[[WorkQueue[Message], list[UUID]], list[Message]],
        words: str,
    ) -> None:
        selected = list(queryset.values_list("pk", flat=True))
        # Where it is written, which need not be where a router lets the list be read.
        alias = getattr(queryset, "_db", None) or router.db_for_write(OutboxMessage)
        with transaction.atomic(using=alias):  # what was done is logged, or was not done
            changed = verb(outbox.queue.using(alias), selected)
            self._log(request, alias, changed, words)
        self._tell(request, len(selected), len(changed), words)

    def _log(self, request: HttpRequest, alias: str, changed: list[Message], words: str) -> None:
        rows = OutboxMessage._base_manager.using(alias).filter(pk__in=[message.id for message in changed])
        LogEntry.objects.log_actions(
            user_id=str(request.user.pk), queryset=rows, action_flag=CHANGE, change_message=words
        )

    def _tell(self, request: HttpRequest, selected: int, changed: int, words: str) -> None:
        told = ngettext("%(words)s: %(n)d message.", "%(words)s: %(n)d messages.", changed)
        self.message_user(
            request,
            told % {"words": words, "n": changed},
            messages.SUCCESS if changed else messages.WARNING,
        )
        if skipped := selected - changed:
            told = ngettext(
                "%(n)d was left alone: its status does not allow it.",
                "%(n)d were left alone: their status does not allow it.",
                skipped,
            )
            self.message_user(request, told % {"n": skipped}, messages.WARNING)
