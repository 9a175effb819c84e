"""Rows, made with factory_boy."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

import factory

from reliable_messaging import Message
from reliable_messaging.ids import uuid7
from reliable_messaging.models import JobRun, OutboxMessage, Timer


class _Carried(factory.django.DjangoModelFactory):
    """``Factory(...)`` makes it in the default database, ``on(alias, ...)`` elsewhere."""

    class Meta:
        abstract = True

    topic = "test.effect"
    payload = factory.Sequence(str)
    headers = factory.LazyFunction(dict)

    @classmethod
    def on(cls, alias: str, **values: object) -> Any:
        row = cls.build(**values)
        row.save(using=alias, force_insert=True)
        row.refresh_from_db(using=alias)
        return row


class OutboxMessageFactory(_Carried):
    class Meta:
        model = OutboxMessage


class TimerFactory(_Carried):
    class Meta:
        model = Timer


class JobRunFactory(_Carried):
    class Meta:
        model = JobRun

    job = "nightly"
    scheduled_for = factory.LazyFunction(lambda: datetime.now(timezone.utc))


class MessageFactory(factory.Factory):
    """The value that a handler sees, without a row."""

    class Meta:
        model = Message

    id = factory.LazyFunction(uuid7)
    topic = "test.effect"
    body = "1"
    headers = factory.LazyFunction(dict)
    queue = "default"
    priority = 0
    destination = ""
    stream = ""
    sequence = None
    correlation_id = ""
    causation_id = None
    created_at = factory.LazyFunction(lambda: datetime.now(timezone.utc))
    due_at = factory.SelfAttribute("created_at")
    attempts = 1
    failures = 0
    transient_failures = 0
    crashes = 0
    max_attempts = 5
    first_failed_at = None
    last_error = ""
    owner_token = factory.LazyFunction(uuid4)
