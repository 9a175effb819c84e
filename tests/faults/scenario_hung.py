"""Handlers that hang and ignore everything, several at once, in the midst of other work."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db import connections, transaction
from django.db.models import Q, QuerySet

from reliable_messaging.models import OutboxMessage
from tests.testapp.hangs import HOOK, WAYS, keep_the_interpreter, topic_of
from tests.workers import WorkerProcess, eventually

from .chaos import Entry
from .crew import crew_for
from .oracle import TOPIC, Oracle
from .processes import children, listener_sockets, sockets
from .recovery import worker_ids
from .result import Result

THREADS = 4
OPTIONS = (
    *("--lease", "3", "--poll-max", "0.3", "--grace", "2"),
    *("--concurrency", str(THREADS), "--verbosity", "0"),
)
SUPERVISED = ("--processes", "2")
SOCKETS = THREADS + 2 + 4
"""Of one worker: a connection for each handler thread, the claiming thread and the heartbeat; and the
pairs that wake the last two."""
FUNCTION = keep_the_interpreter.__name__
HUNG = Q(topic__startswith="hang.")


def hung(
    using: str, *, seed: int, supervised: bool, waves: Sequence[Sequence[str]], neighbours: int = 20
) -> Result:
    """A wave is a number of topics: one message of each, among as many neighbours of each."""
    oracle, dice = Oracle(using), random.Random(seed)
    with crew_for(using) as crew:
        staff = Staff(using, crew.start(*OPTIONS, *(SUPERVISED if supervised else ())), supervised)
        problems: list[str] = []
        for wave in waves:
            staff.remember()
            _produce(oracle, dice.sample(wave, len(wave)), neighbours)
            oracle.wait(90)
            problems += staff.problems()
        problems += [*_of_the_hung(using), *_of_the_others(using)]
        title = f"hung handlers, {'supervised' if supervised else 'alone'}"
        return crew.judged(oracle.result(title, faults=sum(map(len, waves)), problems=problems))


def frozen(using: str, *, seed: int, topics: Sequence[str], neighbours: int = 20) -> Result:
    """Handlers that stop every thread of their process: only the system can end it. There is one
    process at a time, so whatever is done after that was done by a new one."""
    oracle, dice = Oracle(using), random.Random(seed)
    with crew_for(using) as crew:
        staff = Staff(using, crew.start(*OPTIONS, "--lease", "1", "--processes", "1"), supervised=True)
        staff.remember()
        _produce(oracle, dice.sample(topics, len(topics)), neighbours)
        oracle.wait(90)
        rows = _messages(using)
        problems = [
            *staff.problems(),
            *(f"{row.topic} has {row.crashes} crashes" for row in rows.filter(HUNG).exclude(crashes=1)),
            *(f"{row.topic} has {row.crashes} crashes" for row in rows.filter(crashes__gt=1)),
            *(f"{row.topic} has {row.failures} failures" for row in rows.filter(failures__gt=0)),
        ]
        if FUNCTION not in crew.log.read_text():
            problems.append("nothing says where the process stood")
        return crew.judged(oracle.result("frozen processes", faults=len(topics), problems=problems))


@dataclass(slots=True)
class Staff:
    """The processes that do the work: the one that was started, or its children."""

    using: str
    worker: WorkerProcess
    supervised: bool
    _known: set[UUID] = field(default_factory=set)

    def remember(self) -> None:
        eventually(lambda: bool(self._ids()))
        self._known = self._ids()

    def problems(self) -> Iterator[str]:
        if not self.worker.alive:
            yield "the process has ended"
        if not _comes_true(lambda: bool(self._ids() - self._known)):
            yield "no process was replaced: there is no new worker"
        most = SOCKETS + listener_sockets(self.using)
        if not _comes_true(lambda: all(len(sockets(pid)) <= most for pid in self._pids())):
            yield f"sockets leaked into the new process: {[len(sockets(pid)) for pid in self._pids()]}"

    def _ids(self) -> set[UUID]:
        return set(worker_ids(self.using, self._pids()))

    def _pids(self) -> list[int]:
        pid = self.worker.process.pid
        return children(pid) if self.supervised else [pid]


def _produce(oracle: Oracle, topics: Sequence[str], neighbours: int) -> None:
    """In one transaction, so that they are claimed together."""
    with transaction.atomic(using=oracle.using):
        for topic in topics:
            oracle.produce(neighbours, topic=TOPIC, together=neighbours, rolled_back_every=0)
            oracle.produce(1, topic=topic, rolled_back_every=0)


def _of_the_hung(using: str) -> Iterator[str]:
    """Each is charged once, and with what: a failure, or a crash where it held the only write lock. There
    the process goes at once, and what else was in its hands is charged with a crash too."""
    one_writer = not connections[using].features.has_select_for_update
    for row in _messages(using).filter(HUNG):
        found = (row.failures, row.crashes)
        allowed = {(0, 0)} if row.topic == HOOK else {(1, 0)}
        if one_writer:
            allowed = {(0, 1)} | (allowed if row.topic == HOOK or row.topic.endswith(".loose") else set())
        if found not in allowed:
            yield f"{row.topic}: failures, crashes are {found}, not one of {sorted(allowed)}"


def _of_the_others(using: str) -> Iterator[str]:
    one_writer = not connections[using].features.has_select_for_update
    others = _messages(using).exclude(HUNG)
    if failed := others.exclude(failures=0, transient_failures=0).count():
        yield f"{failed} neighbours were charged with a failure"
    if crashed := others.filter(crashes__gt=1 if one_writer else 0).count():
        yield f"{crashed} neighbours were charged with a crash"


def _messages(using: str) -> QuerySet[OutboxMessage]:
    return OutboxMessage._base_manager.using(using)


def _comes_true(condition: Callable[[], bool]) -> bool:
    try:
        eventually(condition)
    except AssertionError:
        return False
    return True


def _topics(*, atomic: bool) -> list[str]:
    return [topic_of(way, atomic=atomic) for way in WAYS]


WAVES = [_topics(atomic=False), _topics(atomic=True), [HOOK, "hang.lock", "hang.signals.loose", HOOK]]
ENTRIES = [
    Entry("hung-alone", hung, {"supervised": False, "waves": WAVES}),
    Entry("hung-supervised", hung, {"supervised": True, "waves": WAVES}),
    Entry("frozen", frozen, {"topics": ["hang.frozen", "hang.frozen.loose"]}),
]
