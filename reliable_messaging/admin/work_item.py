from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from django.contrib.admin.models import CHANGE, LogEntry
from django.db import router, transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from ..workqueue import WorkQueue
from .read_only import ReadOnlyAdmin

Verb = Callable[[WorkQueue[Any], list[UUID]], list[Any]]


class WorkItemAdmin(ReadOnlyAdmin):
    """Rows of a work queue. What people do to them are verbs of that queue."""

    work_queue: ClassVar[WorkQueue[Any]]

    def act(self, request: HttpRequest, queryset: QuerySet[Any], verb: Verb, words: str) -> None:
        """Apply the verb to what was selected, log what changed, and tell how many that were."""
        selected = list(queryset.values_list("pk", flat=True))
        # Where it is written, which need not be where a router lets the list be read.
        alias = getattr(queryset, "_db", None) or router.db_for_write(self.model)
        with transaction.atomic(using=alias):  # what was done is logged, or was not done
            changed = verb(self.work_queue.using(alias), selected)
            self._log(request, alias, changed, words)
        self.tell(request, words, changed=len(changed), skipped=len(selected) - len(changed))

    def _log(self, request: HttpRequest, alias: str, changed: list[Any], words: str) -> None:
        rows = self.model._base_manager.using(alias).filter(pk__in=[item.id for item in changed])
        LogEntry.objects.log_actions(
            user_id=str(request.user.pk), queryset=rows, action_flag=CHANGE, change_message=words
        )
