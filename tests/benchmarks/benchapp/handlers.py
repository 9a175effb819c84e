"""Handlers that do as little as can be done, and one that computes."""

from __future__ import annotations

import json

from reliable_messaging import Message, handler
from tests.benchmarks.stamps import stamp

from .models import Effect

NOOP = "bench.noop"
INSERT = "bench.insert"
STAMP = "bench.stamp"
COMPUTE = "bench.compute"
COMPUTE_TIMES = 30


@handler(NOOP, atomic=False)
def do_nothing(message: Message) -> None:
    pass


@handler(INSERT)
def insert_one_row(message: Message) -> None:
    Effect.objects.using(message.using).create(message_id=message.id)


@handler(STAMP, atomic=False)
def stamp_the_start(message: Message) -> None:
    stamp(message.body)


@handler(COMPUTE, atomic=False)
def compute(message: Message) -> None:
    """Half a millisecond or so of Python that threads cannot share: what handlers do between their calls."""
    for _ in range(COMPUTE_TIMES):
        json.dumps(json.loads(message.body), indent=1, sort_keys=True)
