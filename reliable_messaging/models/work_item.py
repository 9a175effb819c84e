"""What every claimable row has: one abstract model for outbox messages and all that follow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from ..clock import Now
from ..ids import uuid7
from ..names import QUEUE_LENGTH
from .fields import ExactCharField, ExactTextField
from .indexes import PartialIndex


class Status(models.IntegerChoices):
    READY = 0, _("ready")
    CLAIMED = 1, _("claimed")
    DONE = 2, _("done")
    DEAD = 3, _("dead")
    EXPIRED = 4, _("expired")
    CANCELLED = 5, _("cancelled")


class Priority(models.IntegerChoices):
    """Three bands. A claim looks at one band at a time, so more would make it slower."""

    HIGH = 1, _("high")
    NORMAL = 0, _("normal")
    LOW = -1, _("low")


class WorkItem(models.Model):
    """A row that workers claim under a lease. Only ``workqueue`` writes its status."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    status = models.SmallIntegerField(_("status"), choices=Status, default=Status.READY)
    queue = ExactCharField(_("queue"), max_length=QUEUE_LENGTH, default="default")
    priority = models.SmallIntegerField(_("priority"), choices=Priority, default=Priority.NORMAL)
    due_at = models.DateTimeField(_("due at"), db_default=Now())
    expires_at = models.DateTimeField(_("expires at"), null=True)

    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    failures = models.PositiveIntegerField(_("failures"), default=0)
    transient_failures = models.PositiveIntegerField(_("transient failures"), default=0)
    crashes = models.PositiveIntegerField(_("crashes"), default=0)
    max_attempts = models.PositiveIntegerField(_("max attempts"), default=5)
    first_failed_at = models.DateTimeField(_("infrastructure failing since"), null=True)

    owner_token = models.UUIDField(_("owner token"), null=True)
    claimed_by = models.UUIDField(_("claimed by"), null=True)
    leased_until = models.DateTimeField(_("leased until"), null=True)

    created_at = models.DateTimeField(_("created at"), db_default=Now())
    last_attempt_at = models.DateTimeField(_("last attempt at"), null=True)
    finished_at = models.DateTimeField(_("finished at"), null=True)
    last_error = ExactTextField(_("last error"), default="")
    result = ExactTextField(_("result"), null=True)

    claim_columns: ClassVar[tuple[str, ...]]
    """What a claim reads, in the order in which ``claimed_value`` takes it."""
    ready_only: ClassVar[dict[str, Any]] = {}
    """Columns that mean something only while ready, and what every transition out of it leaves."""
    claimable: ClassVar[Q] = Q()
    """What else must hold for a plain claim; part of the claim index's condition."""
    purgeable: ClassVar[Q] = Q()
    """What else must hold for a finished row to be deleted."""

    class Meta:
        abstract = True
        constraints = [
            models.CheckConstraint(
                name="%(class)s_claim_is_whole",
                condition=Q(status=Status.CLAIMED, owner_token__isnull=False, leased_until__isnull=False)
                | (~Q(status=Status.CLAIMED) & Q(owner_token__isnull=True, leased_until__isnull=True)),
            ),
        ]

    @classmethod
    def with_failures_of_their_own(cls, ids: Sequence[UUID], using: str) -> list[UUID]:  # noqa: ARG003
        """Those whose failures go when they go: ids may be shared with what the items became."""
        return list(ids)

    @classmethod
    def claimed_value(
        cls, row: Sequence[Any], *, owner_token: UUID | None, claimed_at: datetime | None, using: str
    ) -> Any:
        """The light, frozen value for one row of ``claim_columns``."""
        raise NotImplementedError


def work_item_indexes(prefix: str, *, claimable: Q, full_first: tuple[str, ...] = ()) -> list[models.Index]:
    """The indexes of a work item's table, one for each question that workers ask of it. ``full_first``: the
    columns of ``claimable``, where there are no partial indexes."""
    ready = Q(status=Status.READY) & claimable
    return [
        PartialIndex(
            name=f"{prefix}_claim",
            fields=["queue", "priority", "due_at", "id"],
            where=ready & Q(crashes=0),
            full_fields=(*full_first, "status", "crashes", "queue", "priority", "due_at", "id"),
        ),
        PartialIndex(name=f"{prefix}_suspect", fields=["due_at", "id"], where=ready & Q(crashes__gt=0)),
        PartialIndex(
            name=f"{prefix}_lease",
            fields=["leased_until"],
            where=Q(status=Status.CLAIMED),
            full_fields=("status", "leased_until"),
        ),
        PartialIndex(
            name=f"{prefix}_expiry",
            fields=["expires_at"],
            where=Q(status=Status.READY, expires_at__isnull=False),
            full_fields=("status", "expires_at"),
        ),
        PartialIndex(
            name=f"{prefix}_dead",
            fields=["finished_at"],
            where=Q(status=Status.DEAD),
            full_fields=("status", "finished_at"),
        ),
    ]
