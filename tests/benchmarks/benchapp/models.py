"""Tables to compare with. No migrations: ``migrate --run-syncdb`` makes them."""

from __future__ import annotations

from uuid import uuid4

from django.db import models
from django.db.models import Q
from django.utils import timezone

from reliable_messaging.models.indexes import PartialIndex


class Bare(models.Model):
    """The columns of an outbox message, one for one, as anybody would write them down.

    The same columns, so that what differs is what the outbox adds: checks, ids, indexes.
    """

    id = models.UUIDField(primary_key=True, default=uuid4)
    status = models.SmallIntegerField(default=0)
    queue = models.CharField(max_length=100, default="default")
    priority = models.SmallIntegerField(default=0)
    due_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    failures = models.PositiveIntegerField(default=0)
    transient_failures = models.PositiveIntegerField(default=0)
    crashes = models.PositiveIntegerField(default=0)
    max_attempts = models.PositiveIntegerField(default=5)
    first_failed_at = models.DateTimeField(null=True)
    owner_token = models.UUIDField(null=True)
    claimed_by = models.UUIDField(null=True)
    leased_until = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    last_attempt_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    last_error = models.TextField(default="")
    topic = models.CharField(max_length=250)
    payload = models.TextField()
    headers = models.JSONField(default=dict)
    destination = models.CharField(max_length=200, default="")
    stream = models.CharField(max_length=200, default="")
    sequence = models.BigIntegerField(null=True)
    correlation_id = models.CharField(max_length=200, default="")
    causation_id = models.UUIDField(null=True)
    result = models.TextField(null=True)
    dedup_key = models.CharField(max_length=200, null=True)
    dedup_slot = models.UUIDField(null=True)

    class Meta:
        abstract = True


class BareRow(Bare):
    """What ``create()`` and ``bulk_create()`` write when there is no outbox."""


class PlainItem(Bare):
    """The queue of the plain loops: the least index that keeps a claim cheap."""

    class Meta:
        indexes = [
            PartialIndex(
                name="bench_plain_claim",
                fields=["queue", "priority", "due_at", "id"],
                where=Q(status=0),
                full_fields=("status", "queue", "priority", "due_at", "id"),
            )
        ]


class Order(models.Model):
    """The business row of a transaction that also enqueues."""

    number = models.IntegerField()


class Effect(models.Model):
    """The one INSERT of the atomic handler."""

    message_id = models.UUIDField()
