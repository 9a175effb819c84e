"""How a process drains its table, seen from outside: messages acknowledged a second, CPU for each.

Only rows that another session can see as done, or gone, are counted: started is not done, and done
in a transaction that is still open is not done either. The rate is taken between two moments inside
the drain, so the process's start, its careful first claims and its last, short batch are left out.

CPU is the client process's own, without the server's. It hardly changes with what else the machine
does, so it tells a change of the code from a change of the weather.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from .backlog import Lot
from .milestones import STEP, furthest
from .processes import Process

WARM = 0.10
"""Share of the messages that are done before the first moment."""
COOL = 0.95
"""Share of the messages that are done, at most, at the second moment."""
SAMPLE_SECONDS = 0.05
"""Between two looks at the milestones: a few rows, looked up by their ids. A count would read the whole
lot each time, on a core that the worker has a use for and the plain loop, which only waits, has not."""


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    done: int
    cpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    rate: float
    """Messages a second."""
    cpu: float
    """Microseconds of the process's CPU for each message."""


def watch_drain(process: Process, lot: Lot, *, deadline: float) -> Drain:
    """Watch the process drain the lot; returns when all of it is done."""
    samples: list[Sample] = []

    def all_done() -> bool:
        # The moment before the looks, however long they take.
        at, cpu = time.monotonic(), process.cpu_seconds()
        before = samples[-1].done if samples else 0
        done = furthest(lambda number: not lot.undone(number, number), before, lot.count)
        samples.append(Sample(at, done, cpu))
        return done + STEP > lot.count and not lot.undone()  # the last milestone is passed

    process.wait_until(all_done, f"{lot.count} messages were done", seconds=deadline, every=SAMPLE_SECONDS)
    return between(samples, lot.count)


def between(samples: Sequence[Sample], total: int) -> Drain:
    inside = [s for s in samples if WARM * total <= s.done <= COOL * total]
    if len(inside) < 2 or inside[0].done == inside[-1].done:
        raise ValueError(f"The {total} messages were done too fast to be measured: use more of them.")
    first, last = inside[0], inside[-1]
    done = last.done - first.done
    return Drain(rate=done / (last.at - first.at), cpu=(last.cpu - first.cpu) / done * 1e6)
