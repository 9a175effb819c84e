from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from .. import codec
from ..message import DueRun
from ..names import KEY_LENGTH
from .fields import ExactCharField
from .indexes import PartialIndex, PartialUniqueIndex
from .upcoming import DUE_COLUMNS, Upcoming
from .work_item import WorkItem, work_item_indexes


class RunOutcome(models.IntegerChoices):
    SUCCEEDED = 0, _("succeeded")
    FAILED = 1, _("failed")
    EXPIRED = 2, _("expired")
    CANCELLED = 3, _("cancelled")


class JobRun(Upcoming):
    """One due time of a job, or one that somebody has triggered. When it is due it becomes a message, and is
    done as a work item; how that message ends is its outcome.

    The job goes by its name: a run stays when its job is deleted.
    """

    job = ExactCharField(_("job"), max_length=KEY_LENGTH)
    scheduled_for = models.DateTimeField(_("scheduled for"))
    slot = models.DateTimeField(null=True, editable=False)
    """``scheduled_for``, if the schedule made this run: there is one for each due time."""
    held = models.BooleanField(_("waits for the run before it"), default=False)

    outcome = models.SmallIntegerField(_("outcome"), choices=RunOutcome, null=True)
    """None: it has not ended."""
    started_at = models.DateTimeField(_("started at"), null=True)
    """The attempt that ended it."""
    ended_at = models.DateTimeField(_("ended at"), null=True)
    duration = models.DurationField(_("duration"), null=True)

    claim_columns: ClassVar[tuple[str, ...]] = (*DUE_COLUMNS, "job", "scheduled_for")
    value_class = DueRun
    claimable: ClassVar[Q] = Q(held=False)
    purgeable: ClassVar[Q] = Q(outcome__isnull=False)

    class Meta(WorkItem.Meta):
        verbose_name = _("job run")
        verbose_name_plural = _("job runs")
        indexes = [
            *work_item_indexes("rm_run", claimable=Q(held=False), full_first=("held",)),
            PartialUniqueIndex(
                name="rm_run_slot",
                fields=["job", "slot"],
                where=Q(slot__isnull=False),
                full_fields=("job", "slot"),
            ),
            PartialIndex(
                name="rm_run_open",
                fields=["job"],
                where=Q(outcome__isnull=True),
                full_fields=("outcome", "job"),
            ),
            PartialIndex(
                name="rm_run_held",
                fields=["job"],
                where=Q(outcome__isnull=True, held=True),
                full_fields=("held", "outcome", "job"),
            ),
            models.Index(name="rm_run_job", fields=["job", "scheduled_for"]),
        ]
        permissions = [("cancel_jobrun", "Can cancel a run that has not started")]

    def __str__(self) -> str:
        return f"{self.job} {self.scheduled_for:%Y-%m-%d %H:%M:%S %Z}"

    @property
    def is_manual(self) -> bool:
        """Somebody has triggered it; the schedule knows nothing of it."""
        return self.slot is None

    @property
    def output(self) -> Any:
        """What the handler returned."""
        return None if self.result is None else codec.decode(self.result)

    @property
    def error(self) -> str:
        """What the last attempt ended with."""
        return self.last_error
