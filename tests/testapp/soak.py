"""Handlers for minutes at load."""

from __future__ import annotations

import gc

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper

from reliable_messaging import Message, handler

from .models import Effect


@handler("soak.fails")
def fail_once(message: Message) -> None:
    _effect(message, str(message.payload["number"]))
    if not message.failures:
        raise ZeroDivisionError


@handler("soak.probe", atomic=False)
def count_kept_queries(message: Message) -> None:
    """The most that a connection of this process, of whatever thread, has kept for DEBUG."""
    connections = [found for found in gc.get_objects() if isinstance(found, BaseDatabaseWrapper)]
    most = max(len(connection.queries_log) for connection in connections)
    _effect(message, f"DEBUG {settings.DEBUG}: {most} queries")


def _effect(message: Message, name: str) -> None:
    Effect.objects.using(message.using).create(name=name, message_id=message.id)
