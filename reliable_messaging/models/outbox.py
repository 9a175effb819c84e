from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from ..message import Message, message_of_values
from ..names import KEY_LENGTH
from .carried import Carried
from .fields import ExactCharField
from .indexes import PartialIndex, PartialUniqueIndex
from .work_item import WorkItem, work_item_indexes


class OutboxMessage(Carried, WorkItem):
    """A message, written in the transaction of whoever enqueued it."""

    sequence = models.BigIntegerField(_("sequence"), null=True)

    dedup_key = ExactCharField(_("deduplication key"), max_length=KEY_LENGTH, null=True)
    dedup_slot = models.UUIDField(null=True, editable=False)
    """A hash of (topic, destination, dedup_key), held only while ready, by one message at a time."""

    scheduled_for = models.DateTimeField(_("scheduled for"), null=True)
    """When the run of a job was due that this message carries out: the run has the same id. NULL: it is no
    job's."""

    claim_columns: ClassVar[tuple[str, ...]] = (  # in the order of Message's fields
        "id",
        "topic",
        "payload",
        "headers",
        "queue",
        "priority",
        "destination",
        "stream",
        "sequence",
        "correlation_id",
        "causation_id",
        "created_at",
        "due_at",
        "attempts",
        "failures",
        "transient_failures",
        "crashes",
        "max_attempts",
        "first_failed_at",
        "last_error",
        "scheduled_for",
    )
    ready_only: ClassVar[dict[str, Any]] = {"dedup_slot": None}
    claimable: ClassVar[Q] = Q(stream="")

    class Meta(WorkItem.Meta):
        verbose_name = _("outbox message")
        verbose_name_plural = _("outbox messages")
        indexes = [
            *work_item_indexes("rm_outbox", claimable=Q(stream="")),
            PartialUniqueIndex(
                name="rm_outbox_dedup",
                fields=["dedup_slot"],
                where=Q(dedup_slot__isnull=False),
                full_fields=("dedup_slot",),
            ),
            PartialIndex(
                name="rm_outbox_correlation",
                fields=["correlation_id"],
                where=~Q(correlation_id=""),
                full_fields=("correlation_id",),
            ),
        ]
        permissions = [
            ("retry_outboxmessage", "Can retry a waiting outbox message now"),
            ("requeue_outboxmessage", "Can requeue a dead, expired or cancelled outbox message"),
            ("cancel_outboxmessage", "Can cancel a waiting outbox message"),
        ]

    def __str__(self) -> str:
        return f"{self.topic} {self.pk}"

    @classmethod
    def claimed_value(
        cls, row: Sequence[Any], *, owner_token: UUID | None, claimed_at: datetime | None, using: str
    ) -> Message:
        return message_of_values((*row, owner_token, claimed_at, using))

    def as_message(self) -> Message:
        """The value that a handler sees: to call a handler in a test."""
        row = tuple(getattr(self, name) for name in self.claim_columns)
        using = self._state.db or "default"
        return self.claimed_value(row, owner_token=None, claimed_at=None, using=using)
