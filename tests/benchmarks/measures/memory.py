"""Memory: what one worker holds after many messages, against what it held after few.

With the options for throughput: its batches are the largest, and a million is done sooner.
"""

from __future__ import annotations

from collections.abc import Iterator

from reliable_messaging.models import OutboxMessage
from tests.benchmarks.backlog import add
from tests.benchmarks.benchapp.handlers import NOOP
from tests.benchmarks.databases import current
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.processes import Process, worker
from tests.benchmarks.product import throughput_options
from tests.benchmarks.scale import Scale

STEP = 50_000
"""Messages that are there at once."""
MEGABYTE = 2**20
DEADLINE_SECONDS = 120.0


def measure(scale: Scale) -> Iterator[Figure]:
    many = min(current().many, scale.many)
    current().empty()
    current().settle()
    with worker(*throughput_options()) as process:
        _drain(process, scale.early)
        early = process.memory_bytes() / MEGABYTE
        for done in range(scale.early, many, STEP):
            _drain(process, min(STEP, many - done))
        late = process.memory_bytes() / MEGABYTE
    yield Figure(
        measure=f"worker's memory after {many:,} messages",
        unit="MB",
        ours=[late],
        reference=[early],
        reference_name=f"after {scale.early:,}",
        target=Target(must=1.1, aim=1.0, at_least=False),
    )


def _drain(process: Process, count: int) -> None:
    lot = add(OutboxMessage, NOOP, count)
    current().settle()
    process.wait_until(
        lambda: not lot.undone(), f"{count} messages were done", seconds=DEADLINE_SECONDS, every=0.2
    )
