from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from ..message import DueTimer
from ..names import KEY_LENGTH
from .carried import Carried
from .fields import ExactCharField
from .indexes import PartialUniqueIndex
from .outbox import OutboxMessage
from .work_item import WorkItem, work_item_indexes


class Timer(Carried, WorkItem):
    """A message to come. When it is due, a scheduler makes the message, which has the same id: so there can
    be only one."""

    name = ExactCharField(_("name"), max_length=KEY_LENGTH, null=True)
    name_slot = ExactCharField(max_length=KEY_LENGTH, null=True, editable=False)
    """The name, held only while ready, by one timer at a time."""
    time_to_live = models.DurationField(_("time to live"), null=True)
    """Of the message."""

    claim_columns: ClassVar[tuple[str, ...]] = (  # in the order of DueTimer's fields
        "id",
        "name",
        "topic",
        "payload",
        "headers",
        "queue",
        "priority",
        "destination",
        "stream",
        "correlation_id",
        "causation_id",
        "time_to_live",
        "created_at",
        "due_at",
        "attempts",
        "failures",
        "transient_failures",
        "crashes",
        "max_attempts",
        "first_failed_at",
        "last_error",
    )
    ready_only: ClassVar[dict[str, Any]] = {"name_slot": None}

    class Meta(WorkItem.Meta):
        verbose_name = _("timer")
        verbose_name_plural = _("timers")
        indexes = [
            *work_item_indexes("rm_timer", claimable=Q()),
            PartialUniqueIndex(
                name="rm_timer_name",
                fields=["name_slot"],
                where=Q(name_slot__isnull=False),
                full_fields=("name_slot",),
            ),
        ]
        permissions = [
            ("cancel_timer", "Can cancel a waiting timer"),
            ("fire_timer", "Can make a waiting timer due now"),
        ]

    def __str__(self) -> str:
        return self.name or f"{self.topic} {self.pk}"

    @classmethod
    def with_failures_of_their_own(cls, ids: Sequence[UUID], using: str) -> list[UUID]:
        """Not those whose message is still there: it has the same id, and failures of its own."""
        messages = OutboxMessage._base_manager.using(using).filter(pk__in=ids)
        kept = set(messages.values_list("pk", flat=True))
        return [pk for pk in ids if pk not in kept]

    @classmethod
    def claimed_value(
        cls, row: Sequence[Any], *, owner_token: UUID | None, claimed_at: datetime | None, using: str
    ) -> DueTimer:
        values: tuple[Any, ...] = (*row, owner_token, claimed_at, using)
        return DueTimer(*values)
