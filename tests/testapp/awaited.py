"""Async handlers for worker processes of the tests."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from reliable_messaging import Message, handler

from .models import Effect


@handler("fault.async")
async def make_numbered_effect(message: Message) -> None:
    """Waits a little, as for a service, and makes the effect that the oracle asks for."""
    await asyncio.sleep(0.01)
    await _effect(message, str(message.payload["number"]))


@handler("test.async.listening")
async def listen(message: Message) -> None:
    """Says that it began; ends when it is told to stop."""
    Path(message.payload["touch"]).touch()
    while not message.should_stop:
        await asyncio.sleep(0.02)
    await _effect(message, "told")


@handler("test.async.endless")
async def never_end(message: Message) -> None:
    """Says that it began, and how it ended; does not ask whether it should."""
    Path(message.payload["touch"]).touch()
    try:
        await asyncio.sleep(600)
    finally:
        Path(message.payload["ended"]).touch()


@handler("test.async.late", timeout=1)
async def be_late(message: Message) -> None:
    await asyncio.sleep(600)


@handler("test.async.deaf", timeout=1)
async def be_deaf(message: Message) -> None:
    """Ignores its cancellation."""
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass


@handler("test.async.blocks", timeout=1)
async def block(message: Message) -> None:
    """Does not let go of the event loop."""
    time.sleep(600)


@handler("test.async.patient")
async def be_patient(message: Message) -> None:
    """Beside one that blocks it cannot go on, and is run again elsewhere."""
    await asyncio.sleep(0.5)
    await _effect(message, f"patient {message.payload}")


async def _effect(message: Message, name: str) -> None:
    await Effect.objects.using(message.using).acreate(name=name, message_id=message.id)
