"""How far a long drain has come, without counting.

A count over a million rows takes the server as long as a thousand messages. But claims take the
oldest first, so it is enough to ask for a few rows by their ids whether they are done, or gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .backlog import Lot
from .processes import Process

STEP = 200
"""Messages from one milestone to the next."""
SAMPLE_SECONDS = 0.2
NEARLY = 0.98
"""Share of the lot after which there may be too little left to be drained at full speed."""


@dataclass(frozen=True, slots=True)
class Passed:
    at: float
    done: int


def watch(process: Process, lot: Lot, *, seconds: float, patience: float) -> list[Passed]:
    """For so long after the first message was done, or until there is little left."""
    samples: list[Passed] = []

    def enough() -> bool:
        at, before = time.monotonic(), samples[-1].done if samples else 0
        done = furthest(lambda number: not lot.undone(number, number), before, lot.count)
        if done:
            samples.append(Passed(at, done))
        return bool(samples) and (at - samples[0].at >= seconds or done >= NEARLY * lot.count)

    process.wait_until(
        enough, f"the drain had gone on for {seconds:g} s", seconds=patience + seconds, every=SAMPLE_SECONDS
    )
    return samples


def furthest(is_done: Callable[[int], bool], known: int, last: int) -> int:
    """The number of the last milestone that is done, from one that is known to be."""
    low, high = known // STEP, last // STEP
    while low < high:
        middle = (low + high + 1) // 2
        if is_done(middle * STEP):
            low = middle
        else:
            high = middle - 1
    return low * STEP


def first_and_last_rate(samples: Sequence[Passed], window: float) -> tuple[float, float]:
    """Messages a second in the first seconds and in the last ones."""
    first, last = samples[0], samples[-1]
    if last.at - first.at < 2 * window:
        raise ValueError(f"The drain was over within {last.at - first.at:.0f} s: use more messages.")
    early = min(samples, key=lambda sample: abs(sample.at - first.at - window))
    late = min(samples, key=lambda sample: abs(last.at - sample.at - window))
    return _rate(first, early), _rate(late, last)


def _rate(one: Passed, other: Passed) -> float:
    return (other.done - one.done) / (other.at - one.at)
