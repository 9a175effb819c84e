"""Handlers that run into limits of the server: somebody's locks, time-outs, each other."""

from __future__ import annotations

import time

from django.db import connections

from reliable_messaging import Message, handler

from .models import Effect

SLEEP = {"postgresql": "SELECT pg_sleep(%s)", "mysql": "SELECT SLEEP(%s)"}
SHARED = "shared"
"""The name of a row that others lock too. Such names are words: the oracle knows its own by numbers."""
PAIRS = 4


def sides(pair: int) -> tuple[str, str]:
    return f"left {pair}", f"right {pair}"


@handler("limit.shared")
def write_what_others_lock(message: Message) -> None:
    _lock(message, SHARED)
    _effect(message)


@handler("limit.slow")
def be_slow_at_first(message: Message) -> None:
    """A statement that takes longer than the server allows, and is quick when it is run again."""
    if message.attempts == 1:
        connection = connections[message.using]
        with connection.cursor() as cursor:
            cursor.execute(SLEEP[connection.vendor], [0.8])
    _effect(message)


@handler("limit.crossing")
def lock_in_opposite_orders(message: Message) -> None:
    """Even numbers lock from left to right, odd ones from right to left."""
    number = message.payload["number"]
    pair = sides(number // 2 % PAIRS)
    for name in pair if number % 2 else reversed(pair):
        _lock(message, name)
        time.sleep(0.02)
    _effect(message)


def _lock(message: Message, name: str) -> None:
    # By its key: without an index MariaDB would lock every row on the way.
    effects = Effect.objects.using(message.using)
    key = effects.filter(name=name).values_list("pk", flat=True).get()
    effects.filter(pk=key).update(message_id=message.id)


def _effect(message: Message) -> None:
    Effect.objects.using(message.using).create(name=str(message.payload["number"]), message_id=message.id)
