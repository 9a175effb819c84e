"""Drain: how fast a backlog is worked off, in messages acknowledged a second.

One worker process with its defaults, no-op handler with ``atomic=False``; beside it the plain loop
of the same batch size, in a process of its own. The worker with its log lines off as well, because
at its defaults it writes one for each message.

Atomic handlers: one INSERT each, with the default chunk and with one transaction for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from reliable_messaging.conf import get_settings
from reliable_messaging.models import OutboxMessage

from .backlog import fill_outbox, fill_plain_queue
from .benchapp.handlers import INSERT, NOOP
from .database import connect
from .figures import Figure, Target
from .observer import Drain, watch_drain
from .processes import plain_loop, worker
from .reference import TABLE as PLAIN_TABLE
from .rounds import alternate
from .scale import Scale

DEADLINE_SECONDS = 90.0


def measure(scale: Scale) -> Iterator[Figure]:
    yield from _no_op(scale)
    yield from _atomic(scale)


def _no_op(scale: Scale) -> Iterator[Figure]:
    batch = get_settings().BATCH_SIZE
    drains = alternate(
        {
            "worker": _worker(NOOP, scale.messages),
            "plain": _plain(2 * scale.messages, batch),
            "quiet": _worker(NOOP, scale.messages, "--verbosity", "0"),
        },
        scale.drain_rounds,
    )
    reference = f"plain loop, batch {batch}"
    target = Target(must=0.6, aim=0.8)
    for name, measure in (("worker", "drain, no-op, defaults"), ("quiet", "drain, no-op, no log lines")):
        yield Figure(
            measure=measure,
            unit="msg/s",
            ours=_rates(drains[name]),
            reference=_rates(drains["plain"]),
            reference_name=reference,
            target=target,
            note="the portable path must reach 0.35",
        )
    for name, measure in (("worker", "CPU for each, defaults"), ("quiet", "CPU for each, no log lines")):
        yield Figure(
            measure=measure,
            unit="µs",
            ours=[drain.cpu for drain in drains[name]],
            reference=[drain.cpu for drain in drains["plain"]],
            reference_name=reference,
        )


def _atomic(scale: Scale) -> Iterator[Figure]:
    drains = alternate(
        {
            "chunks": _worker(INSERT, scale.atomic_messages),
            "single": _worker(INSERT, scale.atomic_messages, "--chunk-size", "1"),
        },
        scale.rounds,
    )
    yield Figure(
        measure="drain, atomic, one INSERT",
        unit="msg/s",
        ours=_rates(drains["chunks"]),
        reference=_rates(drains["single"]),
        reference_name="chunk size 1",
        target=Target(must=2, aim=3),
    )


def _rates(drains: Sequence[Drain]) -> list[float]:
    return [drain.rate for drain in drains]


def _worker(topic: str, count: int, *options: str) -> Callable[[], Drain]:
    def side() -> Drain:
        fill_outbox(topic, count)
        with connect() as session, worker(*options) as process:
            table = OutboxMessage._meta.db_table
            return watch_drain(process, session, table, count, deadline=DEADLINE_SECONDS)

    return side


def _plain(count: int, batch: int) -> Callable[[], Drain]:
    def side() -> Drain:
        fill_plain_queue(NOOP, count)
        with connect() as session, plain_loop("drain", "--batch", str(batch)) as process:
            return watch_drain(process, session, PLAIN_TABLE, count, deadline=DEADLINE_SECONDS)

    return side
