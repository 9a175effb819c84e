"""Handlers that note when they ran: by the database's clock, and by that of their process."""

from __future__ import annotations

import time
from datetime import timedelta

from reliable_messaging import Message, Retry, clock, enqueue, handler

from .models import Effect

DELAY = timedelta(seconds=1)
SLOW = 6.0  # seconds: a jump back and forth is in it


@handler("clock.effect")
def note(message: Message) -> None:
    now = clock.read(message.using)
    ahead = (clock.utcnow() - now).total_seconds()
    _effect(message, str(message.payload["number"]))
    _effect(message, f"at {now.isoformat()} by a clock ahead by {round(ahead / 3600)} h")


@handler("clock.parent")
def enqueue_another(message: Message) -> None:
    note(message)
    enqueue("clock.effect", {"number": message.payload["child"]}, delay=DELAY, using=message.using)


@handler("clock.retry")
def fail_once(message: Message) -> None:
    if not message.failures:
        raise Retry(after=DELAY)
    note(message)


@handler("clock.slow", atomic=False)
def take_some_leases(message: Message) -> None:
    time.sleep(SLOW)
    note(message)


def _effect(message: Message, name: str) -> None:
    Effect.objects.using(message.using).create(name=name, message_id=message.id)
