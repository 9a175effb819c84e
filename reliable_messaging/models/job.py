from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from ..clock import Now
from ..cron import Schedule
from ..names import KEY_LENGTH, QUEUE_LENGTH, TOPIC_LENGTH
from .fields import ExactCharField, ExactTextField
from .indexes import PartialIndex
from .job_run import JobRun
from .work_item import Priority

CRON_LENGTH = 200
ZONE_LENGTH = 100


class Misfire(models.TextChoices):
    """What becomes of due times that nobody was there for."""

    SKIP = "skip", _("skip them")
    ONCE = "once", _("run once for all of them")
    ALL = "all", _("run each of them")


class Overlap(models.TextChoices):
    """What becomes of a due time while an earlier run has not ended."""

    ALLOW = "allow", _("run beside it")
    SKIP = "skip", _("leave it out")
    QUEUE = "queue", _("run after it")


class Job(models.Model):
    """What is to run again and again. Its row says when next; each due time becomes a run."""

    name = ExactCharField(_("name"), max_length=KEY_LENGTH, primary_key=True)
    topic = ExactCharField(_("topic"), max_length=TOPIC_LENGTH)
    payload = ExactTextField(_("payload"), default="null")
    headers = models.JSONField(_("headers"), default=dict, blank=True)
    queue = ExactCharField(_("queue"), max_length=QUEUE_LENGTH, default="", blank=True)
    """Empty: the handler's."""
    priority = models.SmallIntegerField(_("priority"), choices=Priority, default=Priority.NORMAL)
    max_attempts = models.PositiveIntegerField(_("max attempts"), null=True, blank=True)
    """None: the handler's."""
    time_to_live = models.DurationField(_("time to live"), null=True, blank=True)
    """Of each run's message."""

    cron = ExactCharField(_("cron expression"), max_length=CRON_LENGTH)
    timezone = ExactCharField(_("time zone"), max_length=ZONE_LENGTH, default="UTC")
    enabled = models.BooleanField(_("enabled"), default=True)
    misfire = models.CharField(_("missed due times"), max_length=10, choices=Misfire, default=Misfire.ONCE)
    misfire_grace = models.DurationField(_("missed after"), default=timedelta(minutes=1))
    overlap = models.CharField(_("overlapping runs"), max_length=10, choices=Overlap, default=Overlap.ALLOW)

    next_run_at = models.DateTimeField(_("next run"), null=True, editable=False)
    """None: it is disabled."""
    declared = models.JSONField(null=True, editable=False)
    """What the code said when it was last asked. None: the code knows nothing of it."""
    created_at = models.DateTimeField(_("created at"), db_default=Now(), editable=False)

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        indexes = [
            PartialIndex(
                name="rm_job_next",
                fields=["next_run_at"],
                where=Q(next_run_at__isnull=False),
                full_fields=("next_run_at",),
            ),
        ]
        permissions = [
            ("run_job", "Can run a job now"),
            ("enable_job", "Can enable a job"),
            ("disable_job", "Can disable a job"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def schedule(self) -> Schedule:
        return Schedule.of(self.cron, self.timezone)

    @property
    def last_run(self) -> JobRun | None:
        """The one with the latest due time."""
        rows: Any = JobRun._base_manager.using(self._state.db).filter(job=self.name)
        found: JobRun | None = rows.order_by("-scheduled_for").first()
        return found
