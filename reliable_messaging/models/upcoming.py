from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..message import DueItem
from .carried import Carried
from .outbox import OutboxMessage
from .work_item import WorkItem

DUE_COLUMNS = (  # in the order of DueItem's fields
    "id",
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


class Upcoming(Carried, WorkItem):
    """A work item that becomes a message when it is due. The message has the same id: so there can be only
    one."""

    time_to_live = models.DurationField(_("time to live"), null=True)
    """Of the message."""

    value_class: ClassVar[Callable[..., DueItem]]
    """Its fields are DueItem's, and then those of the claim columns that are this model's own."""

    class Meta(WorkItem.Meta):
        abstract = True

    @classmethod
    def with_failures_of_their_own(cls, ids: Sequence[UUID], using: str) -> list[UUID]:
        """Not those whose message is still there: it has the same id, and failures of its own."""
        messages = OutboxMessage._base_manager.using(using).filter(pk__in=ids)
        kept = set(messages.values_list("pk", flat=True))
        return [pk for pk in ids if pk not in kept]

    @classmethod
    def claimed_value(
        cls, row: Sequence[Any], *, owner_token: UUID | None, claimed_at: datetime | None, using: str
    ) -> Any:
        shared = len(DUE_COLUMNS)
        return cls.value_class(*row[:shared], owner_token, claimed_at, using, *row[shared:])
