"""Wake-up: what it costs the producers that sleeping workers are told of their messages.

Eight processes enqueue as fast as they can, with the wake-up on and off in turn, while a worker
listens that serves another queue: it is woken, and takes nothing from the producers but that.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from reliable_messaging.conf import KNOWN_NAMES
from reliable_messaging.models import Worker
from tests.benchmarks.databases import current
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.processes import producer, worker
from tests.benchmarks.producer import Plan, counts_file, ready_file
from tests.benchmarks.product import note_without
from tests.benchmarks.scale import Scale
from tests.services import RUN_DIR

WAKEUP = "WAKEUP"
PRODUCERS = 8
SLOT_SECONDS = 1.0
START_SECONDS = 60.0
SIGNAL_SECONDS = 0.3
"""From giving the signal to the moment it names: all must have read it by then."""
TURNS = (True, False, False, True)
"""Neither side always comes after the other."""


def measure(scale: Scale) -> Iterator[Figure]:
    current().empty()
    current().settle()
    with tempfile.TemporaryDirectory(dir=RUN_DIR) as folder:
        turns = [TURNS[slot % len(TURNS)] for slot in range(2 * scale.wakeup_rounds)]
        rates = _rates(Path(folder), turns)
    yield Figure(
        measure=f"enqueue with wake-up, {PRODUCERS} connections",
        unit="msg/s",
        ours=[rate for rate, on in zip(rates, turns, strict=True) if on],
        reference=[rate for rate, on in zip(rates, turns, strict=True) if not on],
        reference_name="without",
        target=Target(must=0.85, aim=0.95),
        note=note_without(WAKEUP),
    )


def _rates(folder: Path, turns: Sequence[bool]) -> list[float]:
    """Messages that all producers together committed a second, slot by slot, after one to warm up."""
    with worker("--queues", "nobody") as listener, ExitStack() as stack:
        producers = [stack.enter_context(producer(folder, number)) for number in range(PRODUCERS)]
        listener.wait_until(Worker.objects.exists, "the listener was there", seconds=START_SECONDS)
        for number, process in enumerate(producers):
            process.wait_until(
                ready_file(folder, number).exists, "a producer was ready", seconds=START_SECONDS
            )
        Plan(
            begin=time.monotonic() + SIGNAL_SECONDS,
            slot_seconds=SLOT_SECONDS,
            slots=[{WAKEUP: on} if WAKEUP in KNOWN_NAMES else {} for on in (True, *turns)],
        ).announce(folder)
        for process in producers:
            process.wait_for_end(seconds=START_SECONDS + SLOT_SECONDS * (1 + len(turns)))
    counts = [json.loads(counts_file(folder, number).read_text()) for number in range(PRODUCERS)]
    _, *slots = zip(*counts, strict=True)
    return [sum(slot) / SLOT_SECONDS for slot in slots]
