from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from ..message import DueTimer
from ..names import KEY_LENGTH
from .fields import ExactCharField
from .indexes import PartialUniqueIndex
from .upcoming import DUE_COLUMNS, Upcoming
from .work_item import WorkItem, work_item_indexes


class Timer(Upcoming):
    """A message to come. When it is due, a scheduler makes the message."""

    name = ExactCharField(_("name"), max_length=KEY_LENGTH, null=True)
    name_slot = ExactCharField(max_length=KEY_LENGTH, null=True, editable=False)
    """The name, held only while ready, by one timer at a time."""

    claim_columns: ClassVar[tuple[str, ...]] = (*DUE_COLUMNS, "name")
    value_class = DueTimer
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
