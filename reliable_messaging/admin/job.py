from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import router, transaction
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from .. import jobs
from ..cron import as_zone
from ..exceptions import InvalidJob, ReliableMessagingError
from ..jobs import storing
from ..jobs.declared import declared_names
from ..jobs.definition import differing
from ..models import Job, JobRun, OutboxMessage
from ..workqueue.deadlock import retrying_in_transaction
from .job_form import JobForm
from .job_run import state_of
from .read_only import LeanAdmin

MOMENT = "D Y-m-d H:i:s T"
"""With the seconds, and the zone: it need not be the site's."""
SHOWN_VALUE = 200
"""Characters of what the code says."""

Verb = Callable[..., Any]


@admin.register(Job)
class JobAdmin(LeanAdmin):
    """People write jobs, by what the API does."""

    form = JobForm
    list_display = ("name", "when", "enabled", "next_run", "last_run", "last_outcome")
    list_filter = ("enabled",)
    search_fields = ("name",)
    search_help_text = _("A name, or how it begins")
    ordering = ("name",)
    actions = ("run_now", "enable", "disable", "delete_selected")
    fieldsets = (
        (None, {"fields": ("name", "enabled")}),
        (_("Schedule"), {"fields": ("cron", "timezone", "misfire", "misfire_grace", "overlap")}),
        (
            _("Its messages"),
            {
                "fields": (
                    "topic",
                    "payload",
                    "headers",
                    "queue",
                    "priority",
                    "max_attempts",
                    "time_to_live",
                )
            },
        ),
    )
    shown_fieldsets = (
        (_("Runs"), {"fields": ("next_run", "shown_next_times", "shown_runs")}),
        (_("Declared in the code"), {"fields": ("shown_declared",)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any, Any]:
        runs = JobRun._base_manager.filter(job=OuterRef("pk")).order_by("-scheduled_for", "-pk")
        message = OutboxMessage._base_manager.filter(pk=OuterRef("last_run_id"))
        latest = {
            "last_run_id": Subquery(runs.values("pk")[:1]),
            "last_scheduled_for": Subquery(runs.values("scheduled_for")[:1]),
            "last_ended_as": Subquery(runs.values("outcome")[:1]),
            "last_held": Subquery(runs.values("held")[:1]),
            "last_message_status": Subquery(message.values("status")[:1]),
        }
        rows: QuerySet[Any, Any] = super().get_queryset(request).annotate(**latest)
        return rows

    # Showing

    @admin.display(description=_("when"))
    def when(self, row: Job) -> str:
        return f"{row.cron}, {row.timezone}"

    @admin.display(description=_("next run"), ordering="next_run_at")
    def next_run(self, row: Any) -> str | None:
        return _in_its_zone(row, row.next_run_at)

    @admin.display(description=_("last run"))
    def last_run(self, row: Any) -> str | None:
        return _in_its_zone(row, row.last_scheduled_for)

    @admin.display(description=_("last outcome"))
    def last_outcome(self, row: Any) -> str | None:
        if row.last_run_id is None:
            return None
        return state_of(row.last_ended_as, held=row.last_held, message_status=row.last_message_status)

    @admin.display(description=_("next five times"))
    def shown_next_times(self, row: Job) -> SafeString | str:
        """Those of the stored row, in its time zone."""
        try:
            times = jobs.next_times(row.pk, using=row._state.db)
        except InvalidJob as exc:  # somebody has written it past our checks
            return str(exc)
        lines = (date_format(at, MOMENT) for at in times)
        return _one_below_another(lines) or gettext("None: it never fires again.")

    @admin.display(description=_("history"))
    def shown_runs(self, row: Job) -> SafeString:
        if not self.admin_site.is_registered(JobRun):
            return SafeString("-")
        url = reverse(f"{self.admin_site.name}:reliable_messaging_jobrun_changelist")
        return format_html('<a href="{}?{}">{}</a>', url, urlencode({"q": row.pk}), gettext("Its runs"))

    @admin.display(description=_("changed by hand"))
    def shown_declared(self, row: Job) -> SafeString | str:
        lines = (_difference(column, (row.declared or {})[column]) for column in differing(row))
        return _one_below_another(lines) or gettext("Nothing: it is as the code says.")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            return self.fieldsets
        runs, declared = self.shown_fieldsets
        return (*self.fieldsets, runs, *([declared] if obj.declared is not None else []))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        shown = tuple(name for _title, options in self.shown_fieldsets for name in options["fields"])
        return shown if obj is None else ("name", *shown)

    # Finding

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        """As one text: Django's own would look for each word by itself."""
        return queryset.filter(name__startswith=search_term.strip()), False

    # Writing

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        form.using = self._alias(self.get_queryset(request))
        return form

    def save_model(self, request: HttpRequest, obj: Job, form: Any, change: bool) -> None:
        values = {**form.cleaned_data, "name": obj.pk}
        alias = self._alias(self.get_queryset(request))
        retrying_in_transaction(alias, lambda: storing.store(alias, values))

    def delete_model(self, request: HttpRequest, obj: Job) -> None:
        jobs.delete(obj.pk, using=self._alias(self.get_queryset(request)))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        alias = self._alias(queryset)
        with transaction.atomic(using=alias):
            for name in sorted(queryset.values_list("pk", flat=True)):
                jobs.delete(name, using=alias)

    # Acting

    @admin.action(description=_("Run now"), permissions=["run"])
    def run_now(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self._act(request, queryset, jobs.trigger, gettext("Run now"))

    @admin.action(description=_("Enable, from the next due time on"), permissions=["enable"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self._act(request, queryset, jobs.enable, gettext("Enabled"), Q(enabled=False) | Q(next_run_at=None))

    @admin.action(description=_("Disable"), permissions=["disable"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self._act(request, queryset, jobs.disable, gettext("Disabled"), Q(enabled=True))

    @admin.action(description=_("Delete selected %(verbose_name_plural)s"), permissions=["delete"])
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        """Django's, of those that can be deleted here."""
        by_the_code = declared_names(self._alias(queryset))
        if kept := queryset.filter(pk__in=by_the_code).count():
            told = ngettext(
                "%(n)d was left alone: the code declares it, and would bring it back.",
                "%(n)d were left alone: the code declares them, and would bring them back.",
                kept,
            )
            self.message_user(request, told % {"n": kept}, messages.WARNING)
        others = queryset.exclude(pk__in=by_the_code)
        return delete_selected(self, request, others) if others.exists() else None

    def _act(
        self, request: HttpRequest, queryset: QuerySet[Job], verb: Verb, words: str, allowed: Q | None = None
    ) -> None:
        """Apply the verb to what was selected and is so still, log what changed, and tell how many it was."""
        selected = list(queryset.values_list("pk", flat=True))
        alias = self._alias(queryset)
        changed, refused = [], []
        with transaction.atomic(using=alias):  # what was done is logged, or was not done
            rows = Job._base_manager.using(alias).filter(pk__in=selected)
            # In the order of names, so that two of us cannot deadlock.
            for job in rows.filter(allowed or Q()).order_by("pk").select_for_update():
                try:
                    with transaction.atomic(using=alias):
                        verb(job.pk, using=alias)
                    changed.append(job.pk)
                except ReliableMessagingError as exc:  # somebody has written it past our checks
                    refused.append(f"{job.pk!r}: {exc}")
            LogEntry.objects.log_actions(
                user_id=str(request.user.pk),
                queryset=rows.filter(pk__in=changed),
                action_flag=CHANGE,
                change_message=words,
            )
        for told in refused:
            self.message_user(request, told, messages.ERROR)
        skipped = len(selected) - len(changed) - len(refused)
        self.tell(request, words, changed=len(changed), skipped=skipped)

    def _alias(self, queryset: QuerySet[Any, Any]) -> str:
        """Where it is written, which need not be where a router lets the list be read."""
        return str(getattr(queryset, "_db", None) or router.db_for_write(self.model))

    # Allowing: as Django does, except that the code's own jobs cannot be deleted

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if obj is not None and obj.pk in declared_names(self._alias(self.get_queryset(request))):
            return False
        return super().has_delete_permission(request, obj)

    def has_run_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "run")

    def has_enable_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "enable")

    def has_disable_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "disable")


def _in_its_zone(job: Job, moment: datetime | None) -> str | None:
    if moment is None:
        return None
    try:
        return date_format(moment.astimezone(as_zone(job.timezone)), MOMENT)
    except InvalidJob:  # somebody has written it past our checks
        return str(moment)


def _difference(column: str, value: Any) -> str:
    field: Any = Job._meta.get_field(column)
    said = value if column == "payload" else json.dumps(value, ensure_ascii=False)
    shown = {"column": field.verbose_name, "value": said[:SHOWN_VALUE]}
    return gettext("%(column)s: the code says %(value)s") % shown


def _one_below_another(lines: Iterable[str]) -> SafeString:
    return format_html_join("", "<div>{}</div>", ((line,) for line in lines))
