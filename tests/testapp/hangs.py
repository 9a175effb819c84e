"""Handlers that hang at their first attempt and ignore everything; the next attempt goes well."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable

from django.db import transaction

from reliable_messaging import Message, handler

from .models import Effect

TIMEOUT = 1.0


def sleep_on() -> None:
    while True:
        time.sleep(0.05)


def block_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    sleep_on()


def wait_for_a_lock() -> None:
    """In C, where no exception can reach it."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def swallow_everything() -> None:
    while True:
        try:
            sleep_on()
        except BaseException:
            pass


def keep_the_interpreter() -> None:
    """A regular expression that explodes: no other thread of the process runs until it ends, which it
    will not."""
    re.match(r"(a+)+$", "a" * 64 + "!")


WAYS = {
    "sleep": sleep_on,
    "signals": block_signals,
    "lock": wait_for_a_lock,
    "swallow": swallow_everything,
}
HOOK = "hang.hook"


def topic_of(way: str, *, atomic: bool) -> str:
    return f"hang.{way}" if atomic else f"hang.{way}.loose"


def _declare(way: str, hang: Callable[[], None], *, atomic: bool) -> None:
    @handler(topic_of(way, atomic=atomic), atomic=atomic, timeout=TIMEOUT)
    def hanging(message: Message) -> None:
        _effect(message)
        if not (message.failures or message.crashes):
            hang()


for _way, _hang in WAYS.items():
    _declare(_way, _hang, atomic=True)
    _declare(_way, _hang, atomic=False)


@handler(HOOK, timeout=TIMEOUT)
def leave_a_hook_that_hangs(message: Message) -> None:
    """After the commit: there is nothing left to retry."""
    _effect(message)
    transaction.on_commit(sleep_on, using=message.using)


_declare("frozen", keep_the_interpreter, atomic=True)
_declare("frozen", keep_the_interpreter, atomic=False)


def _effect(message: Message) -> None:
    Effect.objects.using(message.using).create(name=str(message.payload["number"]), message_id=message.id)
