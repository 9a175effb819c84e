"""Handlers for worker processes of the tests."""

from __future__ import annotations

import os
import time
from pathlib import Path

from reliable_messaging import Message, PermanentError, handler
from tests.faults import bad_handlers, good_neighbour  # noqa: F401  (they declare handlers)

from . import awaited, hangs, limits, outside, poison, soak, timing  # noqa: F401  (they declare handlers)
from .models import Effect


def effect(message: Message, name: str) -> None:
    Effect.objects.using(message.using).create(name=name, message_id=message.id)


@handler("test.effect")
def make_effect(message: Message) -> None:
    """Atomic: its row and the ack commit together."""
    effect(message, f"effect {message.payload}")
    time.sleep(0.002)


@handler("test.loose", atomic=False)
def make_loose_effect(message: Message) -> None:
    effect(message, f"loose {message.payload}")


@handler("fault.effect")
def make_numbered_effect(message: Message) -> None:
    """Atomic; the effect bears the number of the order that the oracle wrote with the message."""
    effect(message, str(message.payload["number"]))


@handler("fault.loose", atomic=False)
def make_loose_numbered_effect(message: Message) -> None:
    effect(message, str(message.payload["number"]))


@handler("test.nap", atomic=False)
def nap(message: Message) -> None:
    """As a call to a service would: it takes time, and holds no lock."""
    time.sleep(0.02)
    effect(message, "nap")


@handler("test.slow", atomic=False)
def be_slow(message: Message) -> None:
    """Says that it began, then takes its time."""
    payload = message.payload
    Path(payload["touch"]).touch()
    time.sleep(payload["seconds"])
    effect(message, "slow")


@handler("test.stubborn", atomic=False)
def be_stubborn(message: Message) -> None:
    """Never ends by itself, unless told to stop and willing to listen."""
    payload = message.payload
    Path(payload["touch"]).touch()
    while not (payload["listens"] and message.should_stop):
        time.sleep(0.02)


@handler("test.impossible")
def never_succeed(message: Message) -> None:
    raise PermanentError("it cannot be done")


@handler("test.poison", atomic=False)
def kill_the_worker(message: Message) -> None:
    os._exit(9)


def hang_on() -> None:
    """Ignores everything."""
    while True:
        time.sleep(0.05)


@handler("test.hangs", atomic=False, timeout=1)
def hang(message: Message) -> None:
    hang_on()


@handler("test.hangs.atomic", timeout=1)
def hang_in_transaction(message: Message) -> None:
    effect(message, "never")
    hang_on()


@handler("test.hangs.listening", atomic=False, timeout=1)
def hang_until_told(message: Message) -> None:
    while not message.should_stop:
        time.sleep(0.02)
