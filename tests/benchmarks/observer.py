"""How a process drains its table, seen from outside: messages acknowledged a second, CPU for each.

Only rows that another session can see as done are counted: started is not done, and done in a
transaction that is still open is not done either. The rate is taken between two moments inside
the drain, so the process's start, its careful first claims and its last, short batch are left out.

CPU is the client process's own, without the server's. It hardly changes with what else the machine
does, so it tells a change of the code from a change of the weather.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from .processes import Process

DONE = 2
WARM = 0.10
"""Share of the messages that are done before the first moment."""
COOL = 0.95
"""Share of the messages that are done, at most, at the second moment."""
SAMPLE_SECONDS = 0.05
"""A count reads the whole table: often enough for precision, too seldom to take a core away."""


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


def watch_drain(
    process: Process, session: psycopg.Connection[Any], table: str, total: int, *, deadline: float
) -> Drain:
    """Watch the process drain the table; returns when all of it is done."""
    samples: list[Sample] = []

    def all_done() -> bool:
        samples.append(_sample(process, session, table))
        return samples[-1].done >= total

    process.wait_until(all_done, f"{total} messages were done", seconds=deadline, every=SAMPLE_SECONDS)
    return _between(samples, total)


def _sample(process: Process, session: psycopg.Connection[Any], table: str) -> Sample:
    # The statement's own time: its snapshot is taken then, however long the count takes.
    row = session.execute(
        "SELECT extract(epoch FROM statement_timestamp())::float8, count(*) "
        f"FROM {table} WHERE status = {DONE}"
    ).fetchone()
    assert row is not None
    return Sample(*row, process.cpu_seconds())


def _between(samples: list[Sample], total: int) -> Drain:
    inside = [s for s in samples if WARM * total <= s.done <= COOL * total]
    if len(inside) < 2:
        raise ValueError(f"The {total} messages were done too fast to be measured: use more of them.")
    first, last = inside[0], inside[-1]
    done = last.done - first.done
    return Drain(rate=done / (last.at - first.at), cpu=(last.cpu - first.cpu) / done * 1e6)
