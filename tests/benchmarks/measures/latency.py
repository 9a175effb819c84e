"""Latency: milliseconds from a producer's commit to the start of the handler.

Twenty messages a second at uneven distances, each in a transaction of its own, on a worker with
its defaults; beside it, where a session can be woken, a plain loop that sleeps on LISTEN and is
woken by a NOTIFY in the producer's transaction.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from django.db import connection, transaction

from reliable_messaging import enqueue
from tests.benchmarks.benchapp.handlers import STAMP
from tests.benchmarks.benchapp.models import PlainItem
from tests.benchmarks.databases import current
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.processes import Process, plain_loop, worker
from tests.benchmarks.reference import CHANNEL
from tests.benchmarks.rounds import alternate
from tests.benchmarks.scale import Scale
from tests.benchmarks.timing import ENVIRONMENT, Commits, Send, percentile, start_afresh, wait_for_first

RATE = 20
WARM_UP = RATE  # messages of the first second
TARGETS = {
    50: Target(must=3, aim=1.6, at_least=False),
    99: Target(must=6, aim=2, at_least=False),
}


def measure(scale: Scale) -> Iterator[Figure]:
    count = WARM_UP + int(RATE * scale.latency_seconds)

    def ours() -> list[float]:
        start_afresh()
        with worker(environment=ENVIRONMENT) as process:
            return _waits(process, _enqueue, count)

    def plain() -> list[float]:
        start_afresh()
        with plain_loop("listen", environment=ENVIRONMENT) as process:
            return _waits(process, _insert_and_notify, count)

    sides: dict[str, Callable[[], list[float]]] = {"ours": ours}
    if current().notifies:
        sides["plain"] = plain
    found = alternate(sides, scale.rounds)
    for percent, target in TARGETS.items():
        yield Figure(
            measure=f"latency at {RATE}/s, p{percent}",
            unit="ms",
            ours=[percentile(waits, percent) for waits in found["ours"]],
            reference=[percentile(waits, percent) for waits in found.get("plain", [])],
            reference_name="plain LISTEN loop" if "plain" in found else "",
            target=target,
        )


def _waits(process: Process, send: Send, count: int) -> list[float]:
    """Of the messages after the warm-up, sent at the same distances on both sides."""
    wait_for_first(process, send)
    commits, dice, began = Commits(send), random.Random(count), time.monotonic()
    for number in range(count):
        # Anywhere within its slot: at even distances it would fall into step with the polling.
        commits.send(number, began + (number + dice.random()) / RATE)
    waits = commits.waits(process)
    return [waits[number] for number in range(WARM_UP, count)]


def _enqueue(number: int) -> None:
    with transaction.atomic():
        enqueue(STAMP, number)


def _insert_and_notify(number: int) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        PlainItem.objects.create(topic=STAMP, payload=str(number))
        cursor.execute(f"NOTIFY {CHANNEL}")
