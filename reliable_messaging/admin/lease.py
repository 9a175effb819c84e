from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import router, transaction
from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from .. import clock, leases
from ..models import Lease
from .read_only import ReadOnlyAdmin


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    list_display = ("name", "held", "owner", "token", "acquired_at", "expires_at")
    search_fields = ("name",)
    ordering = ("name",)
    actions = ("release",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any, Any]:
        ends_in: Any = F("expires_at") - clock.now()
        rows: QuerySet[Any, Any] = super().get_queryset(request).annotate(ends_in=ends_in)
        return rows

    @admin.display(description=_("held"), boolean=True)
    def held(self, row: Any) -> bool:
        return row.ends_in is not None and row.ends_in > timedelta(0)

    @admin.action(
        description=_("Take away from their holders, who learn of it later"), permissions=["release"]
    )
    def release(self, request: HttpRequest, queryset: QuerySet[Lease]) -> None:
        selected = list(queryset)
        alias = getattr(queryset, "_db", None) or router.db_for_write(Lease)
        with transaction.atomic(using=alias):  # what was done is logged, or was not done
            taken = [row for row in selected if leases.take_away(row.name, using=alias)]
            rows = Lease._base_manager.using(alias).filter(pk__in=[row.pk for row in taken])
            LogEntry.objects.log_actions(
                user_id=str(request.user.pk),
                queryset=rows,
                action_flag=CHANGE,
                change_message=gettext("Taken away"),
            )
        if taken:
            told = ngettext("%(n)d lease was taken away.", "%(n)d leases were taken away.", len(taken))
            self.message_user(request, told % {"n": len(taken)}, messages.SUCCESS)
        if free := len(selected) - len(taken):
            told = ngettext("%(n)d was held by nobody.", "%(n)d were held by nobody.", free)
            self.message_user(request, told % {"n": free}, messages.WARNING)

    def has_release_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "release")
