"""Late commits: ids and due times are not the order of commits.

Eight producers enqueue and keep their transaction open a little longer, so that what a worker has
passed already becomes visible behind it. However a worker remembers where it was, such a message
must not wait for its next thorough look.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from django.db import connection, transaction

from reliable_messaging import enqueue
from tests.benchmarks.benchapp.handlers import STAMP
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.processes import worker
from tests.benchmarks.scale import Scale
from tests.benchmarks.timing import ENVIRONMENT, Commits, start_afresh, wait_for_first

PRODUCERS = 8
HELD_SECONDS = 0.030
RATE = 200
"""Messages a second in all; more than this, and a producer has not let go of its last one in time."""
TOO_LONG_MS = 1_000.0


def measure(scale: Scale) -> Iterator[Figure]:
    rounds = [_waits(scale.late_seconds) for _ in range(scale.rounds)]
    yield Figure(
        measure="late commits, waiting over 1 s",
        unit="%",
        ours=[100 * sum(wait > TOO_LONG_MS for wait in waits) / len(waits) for waits in rounds],
        target=Target(must=0, aim=0, at_least=False, of_ratio=False),
    )
    yield Figure(measure="late commits, longest wait", unit="ms", ours=[max(waits) for waits in rounds])


def _waits(seconds: float) -> list[float]:
    start_afresh()
    with worker(environment=ENVIRONMENT) as process:
        wait_for_first(process, _enqueue)
        commits, began = Commits(_enqueue_and_hold), time.monotonic()
        with ThreadPoolExecutor(PRODUCERS) as pool:
            for sent in [pool.submit(_produce, commits, first, began, seconds) for first in range(PRODUCERS)]:
                sent.result()
        return list(commits.waits(process).values())


def _produce(commits: Commits, first: int, began: float, seconds: float) -> None:
    """Every eighth message, each in its turn: the producers' transactions overlap."""
    try:
        for number in range(first, int(RATE * seconds), PRODUCERS):
            commits.send(number, began + number / RATE)
    finally:
        connection.close()


def _enqueue_and_hold(number: int) -> None:
    with transaction.atomic():
        _enqueue(number)
        time.sleep(HELD_SECONDS)


def _enqueue(number: int) -> None:
    enqueue(STAMP, number)
