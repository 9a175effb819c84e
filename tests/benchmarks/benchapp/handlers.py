"""Handlers that do as little as can be done."""

from __future__ import annotations

from reliable_messaging import Message, handler
from tests.benchmarks.stamps import stamp

from .models import Effect

NOOP = "bench.noop"
INSERT = "bench.insert"
STAMP = "bench.stamp"


@handler(NOOP, atomic=False)
def do_nothing(message: Message) -> None:
    pass


@handler(INSERT)
def insert_one_row(message: Message) -> None:
    Effect.objects.using(message.using).create(message_id=message.id)


@handler(STAMP, atomic=False)
def stamp_the_start(message: Message) -> None:
    stamp(message.body)
