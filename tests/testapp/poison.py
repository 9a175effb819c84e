"""Handlers that kill their own process, or want more memory than there is."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Callable

from reliable_messaging import Message, handler

from .models import Effect

STEP = 32 << 20


def exit_at_once() -> None:
    os._exit(9)


def exit_as_if_all_were_well() -> None:
    os._exit(0)


def segfault() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def be_killed() -> None:
    """As the system does when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


DEATHS = {
    "exit": exit_at_once,
    "exit-0": exit_as_if_all_were_well,
    "segfault": segfault,
    "killed": be_killed,
}


def topic_of(death: str, *, atomic: bool) -> str:
    return f"poison.{death}" if atomic else f"poison.{death}.loose"


def _declare(death: str, die: Callable[[], None], *, atomic: bool) -> None:
    @handler(topic_of(death, atomic=atomic), atomic=atomic)
    def poison(message: Message) -> None:
        Effect.objects.using(message.using).create(name=str(message.payload["number"]), message_id=message.id)
        die()


for _death, _die in DEATHS.items():
    _declare(_death, _die, atomic=True)
    _declare(_death, _die, atomic=False)


@handler("poison.hoard", max_attempts=4)
def hoard(message: Message) -> None:
    """Ends with a MemoryError where the address space has a limit."""
    _take_all()


@handler("poison.hoard.loose", max_attempts=4, atomic=False)
def hoard_loosely(message: Message) -> None:
    _take_all()


def _take_all() -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    assert limit != resource.RLIM_INFINITY, "there is no limit: this would take all of the machine's memory"
    taken = []
    while True:
        taken.append(bytearray(STEP))
