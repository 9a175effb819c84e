"""Run as a process of its own: ``python -m tests.benchmarks.reference drain --batch 50``.

``drain``: claims a batch, calls a function for each row, acknowledges the batch, and starts again
until it is stopped.
``listen``: the same, and when nothing is left it sleeps until it is notified.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from importlib import import_module

import django

from tests.benchmarks.databases import current
from tests.benchmarks.environment import DATABASE
from tests.benchmarks.stamps import stamp

from . import PlainQueue, Row, WakeableQueue

IDLE_SECONDS = 0.1
SAFETY_SECONDS = 1.0
"""A loop that is notified still looks by itself now and then."""


def drain(queue: PlainQueue, batch: int, until: float) -> None:
    while time.monotonic() < until:
        if not one_batch(queue, batch, _do_nothing):
            time.sleep(IDLE_SECONDS)


def listen(queue: WakeableQueue, batch: int, until: float) -> None:
    queue.listen()
    while time.monotonic() < until:
        if not one_batch(queue, batch, _stamp_the_start):
            queue.wait(SAFETY_SECONDS)


def one_batch(queue: PlainQueue, batch: int, handle: Callable[[Row], None]) -> int:
    """Claim, handle and acknowledge one batch; returns how many it had."""
    rows = queue.claim(batch)
    for row in rows:
        handle(row)
    if rows:
        queue.acknowledge(rows)
    return len(rows)


def _do_nothing(row: Row) -> None:
    pass


def _stamp_the_start(row: Row) -> None:
    stamp(row[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loop", choices=["drain", "listen"])
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120.0, help="ends by itself after that")
    given = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.benchmarks.settings")
    django.setup()
    module = import_module(f"{__package__}.{os.environ.get(DATABASE, 'postgres')}")
    loop = drain if given.loop == "drain" else listen
    loop(module.Queue(current().name_of("default")), given.batch, time.monotonic() + given.seconds)


if __name__ == "__main__":
    main()
