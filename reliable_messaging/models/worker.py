from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..clock import Now
from ..ids import uuid7


class Worker(models.Model):
    """A running worker process. Its id is new at each boot; its row goes when it stops."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    host = models.CharField(_("host"), max_length=255)
    pid = models.PositiveIntegerField(_("pid"))
    version = models.CharField(_("version"), max_length=50)
    queues = models.JSONField(_("queues"), null=True)
    in_flight = models.PositiveIntegerField(_("in flight"), default=0)
    started_at = models.DateTimeField(_("started at"), db_default=Now())
    heartbeat_at = models.DateTimeField(_("heartbeat at"), db_default=Now())

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"
