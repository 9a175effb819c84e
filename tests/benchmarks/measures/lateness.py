"""Lateness: milliseconds from a timer's due time to its message, both by the database's clock.

A scheduler with its defaults, and twenty timers a second that fall due at uneven distances. Half of them were
scheduled before it looked; half are scheduled while it sleeps, a second before they are due.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import timedelta

from reliable_messaging import clock, timers
from reliable_messaging.models import OutboxMessage
from tests.benchmarks.benchapp.handlers import NOOP
from tests.benchmarks.databases import current
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.processes import scheduler
from tests.benchmarks.scale import Scale
from tests.benchmarks.timing import percentile

RATE = 20
BEFORE = 4.0
"""Seconds until the first is due: the scheduler is up by then."""
TARGETS = {50: None, 99: Target(must=50, aim=50, at_least=False, of_ratio=False)}


def measure(scale: Scale) -> Iterator[Figure]:
    rounds = [_lateness(scale.latency_seconds, seed) for seed in range(scale.rounds)]
    for percent, target in TARGETS.items():
        yield Figure(
            measure=f"lateness of timers, p{percent}",
            unit="ms",
            ours=[percentile(late, percent) for late in rounds],
            target=target,
        )


def _lateness(seconds: float, seed: int) -> list[float]:
    current().empty()
    current().settle()
    dice = random.Random(seed)
    with scheduler() as process:
        start, began = clock.read("default") + timedelta(seconds=BEFORE), time.monotonic() + BEFORE
        count = int(RATE * seconds)
        moments = [(number + dice.random()) / RATE for number in range(count)]
        for moment in moments[::2]:
            timers.schedule(NOOP, due_at=start + timedelta(seconds=moment))
        for moment in moments[1::2]:
            time.sleep(max(0.0, began + moment - 1 - time.monotonic()))
            timers.schedule(NOOP, due_at=start + timedelta(seconds=moment))
        messages = OutboxMessage._base_manager.all()
        process.wait_until(
            lambda: messages.count() == count, f"{count} timers have fired", seconds=60, every=0.2
        )
    times = messages.values_list("due_at", "created_at")
    return [(created - due).total_seconds() * 1000 for due, created in times]
