"""Lateness: milliseconds from a due time to its message, both by the database's clock.

A scheduler with its defaults. Twenty timers a second fall due at uneven distances: half of them were
scheduled before it looked; half are scheduled while it sleeps, a second before they are due. And ten jobs run
every second, all of them due at the same moment.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from reliable_messaging import clock, jobs, timers
from reliable_messaging.models import OutboxMessage
from tests.benchmarks.benchapp.handlers import NOOP
from tests.benchmarks.databases import current
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.processes import scheduler
from tests.benchmarks.scale import Scale
from tests.benchmarks.timing import percentile

RATE = 20
JOBS = 10
BEFORE = 4.0
"""Seconds until the first one that counts is due: the scheduler is up by then."""
LATEST = 60.0
TARGETS = {50: None, 99: Target(must=50, aim=50, at_least=False, of_ratio=False)}


def measure(scale: Scale) -> Iterator[Figure]:
    seconds, rounds = scale.latency_seconds, range(scale.rounds)
    yield from _figures("timers", [_of_timers(seconds, seed) for seed in rounds])
    yield from _figures("one-second jobs", [_of_jobs(int(seconds)) for _ in rounds])


def _figures(what: str, rounds: Sequence[Sequence[float]]) -> Iterator[Figure]:
    for percent, target in TARGETS.items():
        yield Figure(
            measure=f"lateness of {what}, p{percent}",
            unit="ms",
            ours=[percentile(late, percent) for late in rounds],
            target=target,
        )


def _of_timers(seconds: float, seed: int) -> list[float]:
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
            lambda: messages.count() == count, f"{count} timers have fired", seconds=LATEST, every=0.2
        )
    return _milliseconds(messages.values_list("due_at", "created_at"))


def _of_jobs(seconds: int) -> list[float]:
    current().empty()
    current().settle()
    with scheduler() as process:
        first = clock.read("default").replace(microsecond=0) + timedelta(seconds=BEFORE)
        for number in range(JOBS):
            jobs.create_or_update(f"bench-{number}", topic=NOOP, cron="* * * * * *")
        time.sleep(BEFORE + seconds)
        last, count = first + timedelta(seconds=seconds - 1), JOBS * seconds
        messages = OutboxMessage._base_manager.filter(scheduled_for__range=(first, last))
        process.wait_until(
            lambda: messages.count() == count, f"{count} runs have a message", seconds=LATEST, every=0.2
        )
    return _milliseconds(messages.values_list("scheduled_for", "created_at"))


def _milliseconds(times: Iterable[tuple[datetime, datetime]]) -> list[float]:
    return [(created - due).total_seconds() * 1000 for due, created in times]
