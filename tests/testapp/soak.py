"""Handlers for minutes at load."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from django.conf import settings
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from reliable_messaging import Message, handler

from .models import Effect

opened: WeakSet[Any] = WeakSet()
"""Connections of every thread. Not by way of gc.get_objects(): what it hands out of another thread's
half-made objects ends the process now and then."""


@receiver(connection_created)
def remember(connection: Any, **_: Any) -> None:
    opened.add(connection)


@handler("soak.fails")
def fail_once(message: Message) -> None:
    _effect(message, str(message.payload["number"]))
    if not message.failures:
        raise ZeroDivisionError


@handler("soak.awaited")
async def await_the_database(message: Message) -> None:
    await Effect.objects.using(message.using).aexists()


@handler("soak.probe", atomic=False)
def count_kept_queries(message: Message) -> None:
    """The most that a connection of this process, of whatever thread, has kept for DEBUG."""
    Effect.objects.using(message.using).exists()  # one at least, so that with DEBUG there is one to be seen
    most = max(len(connection.queries_log) for connection in list(opened))
    _effect(message, f"DEBUG {settings.DEBUG}: {most} queries")


def _effect(message: Message, name: str) -> None:
    Effect.objects.using(message.using).create(name=name, message_id=message.id)
