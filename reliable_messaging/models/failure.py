from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..clock import Now
from ..report import FailureKind
from .fields import ExactCharField, ExactTextField


class Failure(models.Model):
    """One kind of failure of one work item; repetitions raise ``count`` instead of adding rows."""

    class Kind(models.IntegerChoices):
        OWN = FailureKind.OWN, _("own")
        TRANSIENT = FailureKind.TRANSIENT, _("infrastructure")
        CRASH = FailureKind.CRASH, _("crash")

    item_id = models.UUIDField(_("item"))
    fingerprint = ExactCharField(_("fingerprint"), max_length=32)
    kind = models.SmallIntegerField(_("kind"), choices=Kind)
    count = models.PositiveIntegerField(_("count"), default=1)
    attempt = models.PositiveIntegerField(_("last attempt"))
    first_at = models.DateTimeField(_("first at"), db_default=Now())
    last_at = models.DateTimeField(_("last at"), db_default=Now())
    worker_id = models.UUIDField(_("worker"), null=True)
    error_class = ExactTextField(_("error class"))
    message = ExactTextField(_("message"))
    traceback = ExactTextField(_("traceback"))

    class Meta:
        verbose_name = _("failure")
        verbose_name_plural = _("failures")
        constraints = [
            models.UniqueConstraint(fields=["item_id", "fingerprint"], name="rm_failure_once"),
        ]

    def __str__(self) -> str:
        return f"{self.error_class} ×{self.count}"
