"""Places where a test can make the process die, stop, hang or lose its database.

``RELIABLE_MESSAGING_FAILPOINTS="point:action:probability:seed"``, several parted by commas, read
once when the process starts. Without it ``hit`` is an empty function: nothing is looked up.

Actions: ``kill`` (SIGKILL), ``stop`` (SIGSTOP), ``exit`` (``os._exit``), ``hang`` (for ever), and
``error`` (an OperationalError, as if the database had gone away).
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from django.db import OperationalError

from .exceptions import SettingsError

VARIABLE = "RELIABLE_MESSAGING_FAILPOINTS"
POINTS = (
    "enqueue-before-commit",
    "claim-locked",
    "claim-committed",
    "handler-start",
    "handler-effect",
    "before-ack",
    "before-commit",
    "after-commit",
    "renew",
    "sweep",
    "handed-over",
    "jobs-planned",
)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _exit() -> NoReturn:
    os._exit(1)


def _hang() -> NoReturn:
    while True:
        time.sleep(3600)


def _error() -> NoReturn:
    raise OperationalError("a failpoint took the database away")


ACTIONS: dict[str, Callable[[], object]] = {
    "kill": _kill,
    "stop": _stop,
    "exit": _exit,
    "hang": _hang,
    "error": _error,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failpoint:
    point: str
    action: str
    probability: float
    seed: str
    _dice: random.Random = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_dice", random.Random(f"{self.point}:{self.seed}"))

    def fires(self) -> bool:
        return self._dice.random() < self.probability


def parse(text: str) -> dict[str, list[Failpoint]]:
    """What is asked for, by point; a word that means nothing is an error, not a fault that never comes."""
    found: dict[str, list[Failpoint]] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        failpoint = _parse_entry(entry)
        found.setdefault(failpoint.point, []).append(failpoint)
    return found


def _parse_entry(entry: str) -> Failpoint:
    try:
        point, action, probability, seed = entry.split(":")
        chance = float(probability)
    except ValueError:
        raise SettingsError(f"{VARIABLE}: {entry!r} is not point:action:probability:seed.") from None
    if point not in POINTS:
        raise SettingsError(f"{VARIABLE}: there is no point {point!r}; there are {', '.join(POINTS)}.")
    if action not in ACTIONS:
        raise SettingsError(f"{VARIABLE}: there is no action {action!r}; there are {', '.join(ACTIONS)}.")
    if not 0 <= chance <= 1:
        raise SettingsError(f"{VARIABLE}: the probability {probability} is not between 0 and 1.")
    return Failpoint(point=point, action=action, probability=chance, seed=seed)


def make_hit(text: str) -> Callable[[str], None]:
    """The function that the code calls at each of its points."""
    armed = parse(text)
    if not armed:
        return _nothing

    def hit(point: str) -> None:
        for failpoint in armed.get(point, ()):
            if failpoint.fires():
                ACTIONS[failpoint.action]()

    return hit


def _nothing(point: str) -> None:
    pass


hit = make_hit(os.environ.get(VARIABLE, ""))
