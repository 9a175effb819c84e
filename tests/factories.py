"""Rows, made with factory_boy."""

from __future__ import annotations

import factory

from reliable_messaging.models import OutboxMessage


class OutboxMessageFactory(factory.django.DjangoModelFactory):
    """``OutboxMessageFactory(...)`` makes it in the default database, ``on(alias, ...)`` elsewhere."""

    class Meta:
        model = OutboxMessage

    topic = "test.effect"
    payload = factory.Sequence(str)
    headers = factory.LazyFunction(dict)

    @classmethod
    def on(cls, alias: str, **values: object) -> OutboxMessage:
        row = cls.build(**values)
        row.save(using=alias, force_insert=True)
        row.refresh_from_db(using=alias)
        return row
