"""Latency: milliseconds from a producer's commit to the start of the handler.

Twenty messages a second at uneven distances, each in a transaction of its own, on a worker with
its defaults; beside it a plain loop that sleeps on LISTEN and is woken by a NOTIFY in the
producer's transaction.

The clock starts when the producer knows of its commit. The server knew a little sooner, and the
plain loop may be at work by then: a reference under a millisecond is right to some tenths only.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import quantiles

from django.db import connection, transaction

from reliable_messaging import enqueue
from tests.services import RUN_DIR

from .benchapp.handlers import STAMP
from .benchapp.models import PlainItem
from .database import empty_tables, settle_tables
from .figures import Figure, Target
from .processes import Process, plain_loop, worker
from .reference import CHANNEL
from .rounds import alternate
from .scale import Scale
from .stamps import VARIABLE, read_stamps

RATE = 20
WARM_UP = RATE  # messages of the first second
START_SECONDS = 30.0
DRAIN_SECONDS = 30.0
PERCENTILES = {"p50": 50, "p99": 99}
TARGETS = {
    "p50": Target(must=3, aim=1.6, at_least=False),
    "p99": Target(must=6, aim=2, at_least=False),
}

Send = Callable[[int], None]


def measure(scale: Scale) -> Iterator[Figure]:
    stamps = RUN_DIR / "stamps"
    environment = {VARIABLE: str(stamps)}
    count = WARM_UP + int(RATE * scale.latency_seconds)

    def ours() -> dict[str, float]:
        _start_afresh(stamps)
        with worker(environment=environment) as process:
            return _percentiles(_latencies(process, stamps, _enqueue, count))

    def plain() -> dict[str, float]:
        _start_afresh(stamps)
        with plain_loop("listen", environment=environment) as process:
            return _percentiles(_latencies(process, stamps, _insert_and_notify, count))

    found = alternate({"ours": ours, "plain": plain}, scale.rounds)
    for name in PERCENTILES:
        yield Figure(
            measure=f"latency at {RATE}/s, {name}",
            unit="ms",
            ours=[values[name] for values in found["ours"]],
            reference=[values[name] for values in found["plain"]],
            reference_name="plain LISTEN loop",
            target=TARGETS[name],
        )


def _latencies(process: Process, stamps: Path, send: Send, count: int) -> list[float]:
    """Send the messages in time, wait for all of them; milliseconds, without the warm-up."""
    send(-1)
    process.wait_until(lambda: -1 in read_stamps(stamps), "the first message was run", seconds=START_SECONDS)
    committed: dict[int, int] = {}
    dice = random.Random(count)  # the same distances on both sides
    began = time.monotonic()
    for number in range(count):
        # Anywhere within its slot: at even distances it would fall into step with the polling.
        _sleep_until(began + (number + dice.random()) / RATE)
        send(number)
        committed[number] = time.monotonic_ns()
    process.wait_until(
        lambda: len(read_stamps(stamps)) > count,
        f"{count} messages were run",
        seconds=DRAIN_SECONDS,
        every=0.2,
    )
    starts = read_stamps(stamps)
    return [(starts[n] - committed[n]) / 1e6 for n in range(WARM_UP, count)]


def _percentiles(latencies: list[float]) -> dict[str, float]:
    cuts = quantiles(latencies, n=100, method="inclusive")
    return {name: cuts[percent - 1] for name, percent in PERCENTILES.items()}


def _enqueue(number: int) -> None:
    with transaction.atomic():
        enqueue(STAMP, number)


def _insert_and_notify(number: int) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        PlainItem.objects.create(topic=STAMP, payload=str(number))
        cursor.execute(f"NOTIFY {CHANNEL}")


def _start_afresh(stamps: Path) -> None:
    stamps.unlink(missing_ok=True)
    empty_tables()
    settle_tables()


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
