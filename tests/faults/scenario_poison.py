"""Messages that kill their worker: exactly these go dead, by crashes alone, while the rest is done."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator, Sequence
from functools import partial

from django.db import transaction
from django.db.models import QuerySet

from reliable_messaging.models import Failure, OutboxMessage, Status, Worker
from tests.testapp.models import Effect
from tests.testapp.poison import topic_of
from tests.workers import WorkerProcess, eventually

from .chaos import Entry
from .crew import Crew, crew_for
from .oracle import TOPIC, Oracle
from .processes import address_space, children
from .result import Result

MAX_CRASHES = 3  # not max_attempts, which is 5: a mix-up of the two would show
BATCH = 50
OPTIONS = (
    *("--lease", "2", "--poll-max", "0.3", "--grace", "2"),
    *("--batch-size", str(BATCH), "--concurrency", "4", "--verbosity", "0"),
)
PROCESSES = 2
ROOM = 256 << 20
"""Bytes that a worker under a limit may add to what it has at its start."""


def poison(using: str, *, seed: int, guilty: Sequence[str], neighbours: int = 50) -> Result:
    """These topics, one message of each, each at a random place in a batch of its own."""
    oracle, dice = Oracle(using), random.Random(seed)
    oracle.produce(BATCH * 2)  # for the worker to learn that these are quick: then it claims whole batches
    for topic in guilty:
        _hide(oracle, topic, neighbours, dice)
    oracle.expect_dead(_guilty(using).values_list("id", flat=True))
    with crew_for(using) as crew:
        limits = {"TEST_MAX_CRASHES": str(MAX_CRASHES)}
        worker = crew.start(*OPTIONS, "--processes", str(PROCESSES), environment=limits)
        eventually(partial(_all_in_quarantine, using), seconds=120)
        bystanders = oracle.produce(BATCH, rolled_back_every=0)
        oracle.wait(180)
        problems = [
            *_of_the_guilty(using),
            *_of_the_others(using),
            *_of_the_pace(using, bystanders),
            *_of_the_supervisor(worker),
        ]
        return crew.judged(oracle.result(_title(guilty), faults=len(guilty) * MAX_CRASHES, problems=problems))


def hoarders(using: str, *, seed: int, messages: int = 20) -> Result:
    """A worker short of memory: its MemoryErrors are failures like any other, and it lives on."""
    oracle = Oracle(using)
    with crew_for(using) as crew:
        worker = _start_with_little_memory(crew)
        for topic in ("poison.hoard", "poison.hoard.loose"):
            oracle.produce(messages // 2, rolled_back_every=0)
            oracle.produce(2, topic=topic, rolled_back_every=0)
        oracle.expect_dead(_guilty(using).values_list("id", flat=True))
        oracle.wait(60)
        problems = [*_of_the_hoarders(using), *_of_the_process(using, worker)]
        return crew.judged(
            oracle.result("out of memory", faults=sum(h.failures for h in _guilty(using)), problems=problems)
        )


def _hide(oracle: Oracle, topic: str, neighbours: int, dice: random.Random) -> None:
    """In one transaction, so that no worker claims the first of them before the last is there."""
    place = dice.randrange(1, neighbours)
    with transaction.atomic(using=oracle.using):
        for count, which in ((place, TOPIC), (1, topic), (neighbours - place, TOPIC)):
            oracle.produce(count, topic=which, together=neighbours, rolled_back_every=0)


def _messages(using: str) -> QuerySet[OutboxMessage]:
    return OutboxMessage._base_manager.using(using)


def _guilty(using: str) -> QuerySet[OutboxMessage]:
    return _messages(using).filter(topic__startswith="poison.")


def _all_in_quarantine(using: str) -> bool:
    return not _guilty(using).filter(crashes=0).exists()


def _of_the_guilty(using: str) -> Iterator[str]:
    wanted = (Status.DEAD, MAX_CRASHES, 0, 0)
    for row in _guilty(using):
        found = (row.status, row.crashes, row.failures, row.transient_failures)
        if found != wanted:
            yield f"{row.topic}: status, crashes, failures, transient failures are {found}, not {wanted}"
        effects = Effect.objects.using(using).filter(message_id=row.pk).count()
        allowed = MAX_CRASHES if row.topic.endswith(".loose") else 0
        if effects > allowed:
            yield f"{row.topic} has left {effects} effects; at most {allowed} are possible"


def _of_the_others(using: str) -> Iterator[str]:
    others = _messages(using).exclude(topic__startswith="poison.")
    if failed := others.exclude(failures=0, transient_failures=0).count():
        yield f"{failed} innocent messages were charged with a failure"
    if suspects := others.filter(crashes__gt=1).count():
        yield f"{suspects} innocent messages were charged with more than one crash"
    if not others.filter(crashes=1).exists():
        yield "no innocent message was dragged along: the guilty ones were not in a batch"


def _of_the_pace(using: str, bystanders: Sequence[int]) -> Iterator[str]:
    """Which came when the last of the guilty was known to be one, and was not dead yet."""
    theirs = Effect.objects.using(using).filter(name__in=map(str, bystanders)).values("message_id")
    last = _messages(using).filter(pk__in=theirs).latest("finished_at")
    end = _guilty(using).latest("finished_at")
    assert last.finished_at is not None
    assert end.finished_at is not None
    if last.finished_at >= end.finished_at:
        yield f"normal work had to wait for the quarantine: {last.finished_at} is after {end.finished_at}"


def _of_the_supervisor(worker: WorkerProcess) -> Iterator[str]:
    """However its children ended, others have taken their places."""
    try:
        eventually(lambda: len(children(worker.process.pid)) == PROCESSES)
    except AssertionError:
        yield f"{len(children(worker.process.pid))} worker processes are left of {PROCESSES}"


def _title(guilty: Sequence[str]) -> str:
    return f"poison: {', '.join(topic.removeprefix('poison.') for topic in guilty)}"


def _start_with_little_memory(crew: Crew) -> WorkerProcess:
    worker = crew.start(*OPTIONS)
    pid = worker.process.pid
    eventually(lambda: Worker._base_manager.using(crew.using).filter(pid=pid).exists())
    limit = address_space(pid) + ROOM
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))
    return worker


def _of_the_hoarders(using: str) -> Iterator[str]:
    for row in _guilty(using):
        found = (row.status, row.failures, row.attempts, row.crashes)
        wanted = (Status.DEAD, row.max_attempts, row.max_attempts, 0)
        if found != wanted:
            yield f"{row.topic}: status, failures, attempts, crashes are {found}, not {wanted}"
        if not row.last_error.startswith("MemoryError"):
            yield f"{row.topic}: its error is {row.last_error}"
    if Failure._base_manager.using(using).filter(kind=Failure.Kind.CRASH).exists():
        yield "somebody was charged with a crash"


def _of_the_process(using: str, worker: WorkerProcess) -> Iterator[str]:
    workers = set(_messages(using).values_list("claimed_by", flat=True))
    if not worker.alive or len(workers) != 1:
        yield f"the process has ended, or was replaced: {len(workers)} workers claimed something"


def _entry(name: str, *, atomic: bool) -> Entry:
    guilty = [topic_of(death, atomic=atomic) for death in ("exit", "segfault", "killed")]
    return Entry(name, poison, {"guilty": guilty})


ENTRIES = [
    _entry("poison-atomic", atomic=True),
    _entry("poison-loose", atomic=False),
    Entry("poison-memory", hoarders),
]
