"""What a message carries: the columns of an outbox message, and of what becomes one."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..names import KEY_LENGTH, TOPIC_LENGTH
from .fields import ExactCharField, ExactTextField

MARK_LENGTH = 50
"""Room for the prefix of dead letters."""


class Carried(models.Model):
    topic = ExactCharField(_("topic"), max_length=TOPIC_LENGTH + MARK_LENGTH)
    payload = ExactTextField(_("payload"))
    headers = models.JSONField(_("headers"), default=dict)
    destination = ExactCharField(_("destination"), max_length=KEY_LENGTH, default="")
    stream = ExactCharField(_("stream"), max_length=KEY_LENGTH, default="")
    correlation_id = ExactCharField(_("correlation id"), max_length=KEY_LENGTH, default="")
    causation_id = models.UUIDField(_("causation id"), null=True)

    class Meta:
        abstract = True
