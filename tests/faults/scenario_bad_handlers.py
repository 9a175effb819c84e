"""Every kind of bad handler, shuffled among ten times as many good ones, in a real worker process."""

from __future__ import annotations

import random
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connections

from reliable_messaging import OutgoingMessage, enqueue_many
from reliable_messaging.models import OutboxMessage, Status
from tests.testapp.models import Effect
from tests.workers import WorkerProcess, eventually

from . import good_neighbour
from .bad_handlers import KINDS
from .chaos import Entry
from .kinds import OTHER, OWN, Kind
from .result import Result

GOOD_FOR_EACH_BAD = 10
OPTIONS = ("--concurrency", "4", "--chunk-size", "10", "--poll-max", "0.2", "--verbosity", "0")


def run(using: str, *, seed: int, rounds: int = 1) -> Result:
    """Not those that commit past everything: what that does to its neighbours cannot be undone."""
    vendor = connections[using].vendor
    kinds = [kind for kind in KINDS.values() if vendor in kind.databases and not kind.keeps]
    problems: list[str] = []
    Effect.objects.using(OTHER).all().delete()
    with tempfile.TemporaryDirectory() as directory:
        worker = WorkerProcess(using, *OPTIONS, log=Path(directory) / "worker.log")
        try:
            for number in range(rounds):
                _enqueue(using, kinds, random.Random(f"{seed} {number}"))
                eventually(lambda: not _unfinished(using) or not worker.alive, seconds=300, every=0.1)
            worker.send(signal.SIGTERM)
            if worker.wait(60):
                problems.append(f"the worker ended with {worker.process.returncode}: {_last_words(worker)}")
        finally:
            worker.close()
    return _judge(using, rounds * len(kinds), problems)


def _enqueue(using: str, kinds: list[Kind], dice: random.Random) -> None:
    topics = [kind.topic for kind in kinds] + [good_neighbour.TOPIC] * GOOD_FOR_EACH_BAD * len(kinds)
    dice.shuffle(topics)
    payload = good_neighbour.nothing_left(using)
    enqueue_many([OutgoingMessage(topic=topic, payload=payload) for topic in topics], using=using)


def _unfinished(using: str) -> bool:
    return _rows(using).filter(status__in=[Status.READY, Status.CLAIMED]).exists()


def _judge(using: str, faults: int, problems: list[str]) -> Result:
    effects = _effects(using)
    elsewhere = _effects(OTHER)
    rows = list(_rows(using))
    done = [row for row in rows if row.status == Status.DONE]
    dead = [row for row in rows if row.status == Status.DEAD]
    good = [row for row in rows if row.topic == good_neighbour.TOPIC]
    unseen = [row for row in done if not effects[row.pk]]
    unseen += [row for row in good if row.status == Status.DONE and not elsewhere[row.pk]]
    return Result(
        scenario="bad handlers",
        database=connections[using].display_name,
        messages=len(rows),
        faults=faults,
        lost=len(unseen) + len(rows) - len(done) - len(dead),
        duplicated=sum(count - 1 for count in effects.values() if count > 1),
        ghosts=sum(effects[row.pk] for row in dead) + elsewhere[None],
        wrongly_dead=sum(not _may_die(using, row) for row in dead),
        problems=(*problems, *_stories(using, rows)),
    )


def _stories(using: str, rows: list[Any]) -> Iterator[str]:
    vendor = connections[using].vendor
    for row in rows:
        kind = KINDS.get(row.topic.removeprefix("bad."))
        if kind is None and (row.failures or row.transient_failures or row.crashes or row.attempts > 1):
            yield f"a neighbour was charged: {row.last_error}"
        elif kind is not None and (row.status == Status.DEAD) != (kind.end(vendor) == OWN):
            yield f"{kind.name} ended as {Status(row.status).label}: {row.last_error}"
        elif kind is not None and (row.crashes or kind.tells not in row.last_error):
            yield f"{kind.name} was charged with {row.crashes} crashes: {row.last_error}"


def _may_die(using: str, row: Any) -> bool:
    kind = KINDS.get(row.topic.removeprefix("bad."))
    return kind is not None and kind.end(connections[using].vendor) == OWN


def _effects(using: str) -> Counter[UUID | None]:
    return Counter(Effect.objects.using(using).values_list("message_id", flat=True))


def _rows(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def _last_words(worker: WorkerProcess) -> str:
    return worker.log.read_text()[-1000:]


ENTRIES = [Entry("bad handlers", run, {"rounds": 5})]
