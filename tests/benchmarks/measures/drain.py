"""Drain: how fast a backlog is worked off, in messages acknowledged a second.

One worker process with its defaults, no-op handler with ``atomic=False``; beside it the plain loop
of the same batch size, in a process of its own. The worker with its log lines off as well, because
at its defaults it writes one for each message; and where there is a faster path for one database,
the worker without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from reliable_messaging.conf import get_settings
from tests.benchmarks.benchapp.handlers import NOOP
from tests.benchmarks.databases import current
from tests.benchmarks.environment import with_options
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.product import note_without
from tests.benchmarks.rounds import alternate
from tests.benchmarks.scale import Scale
from tests.benchmarks.sides import plain_side, rates, worker_side

FAST_PATH = "FAST_PATH"
DEFAULTS = Target(must=0.6, aim=0.8)
NAMES = {
    "worker": ("defaults", DEFAULTS, ""),
    "quiet": ("no log lines", DEFAULTS, ""),
    "portable": ("portable path", Target(must=0.35, aim=0.35), note_without(FAST_PATH)),
}


def measure(scale: Scale) -> Iterator[Figure]:
    batch = get_settings().BATCH_SIZE
    sides = {
        "worker": worker_side(NOOP, scale.messages),
        "plain": plain_side(scale.messages, batch),
        "quiet": worker_side(NOOP, scale.messages, "--verbosity", "0"),
    }
    if current().has_fast_path:
        portable = with_options(**{FAST_PATH: False})
        sides["portable"] = worker_side(NOOP, scale.messages, environment=portable)
    drains = alternate(sides, scale.drain_rounds)
    reference = f"plain loop, batch {batch}"
    for name in [name for name in NAMES if name in sides]:
        words, target, note = NAMES[name]
        yield Figure(
            measure=f"drain, no-op, {words}",
            unit="msg/s",
            ours=rates(drains[name]),
            reference=rates(drains["plain"]),
            reference_name=reference,
            target=target,
            note=note,
        )
    for name in [name for name in NAMES if name in sides]:
        yield Figure(
            measure=f"CPU for each, {NAMES[name][0]}",
            unit="µs",
            ours=[drain.cpu for drain in drains[name]],
            reference=[drain.cpu for drain in drains["plain"]],
            reference_name=reference,
        )
