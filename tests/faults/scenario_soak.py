"""Minutes at load: memory stays, no transaction is left idle, no connection and no thread is leaked."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import connections

from reliable_messaging import OutgoingMessage, enqueue, enqueue_many
from reliable_messaging.models import OutboxMessage
from reliable_messaging.wakeup import can_wake
from tests.testapp.models import Effect
from tests.workers import eventually

from .chaos import Entry
from .crew import Crew, crew_for
from .gauge import Gauge, third
from .oracle import TOPIC, Oracle
from .processes import listener_sockets, thread_count
from .recovery import worker_ids
from .result import Result

Session = tuple[Any, ...]
THREADS = 4
OPTIONS = ("--poll-max", "0.5", "--concurrency", str(THREADS), "--verbosity", "0")
OWN_THREADS = 6
"""The one that claims, the heartbeat, the watchdog, the one that winds up the alarm, the teller, the event
loop."""
SOCKETS = 2 * THREADS + 2 + 6
"""A connection for each handler thread and for as many calls of async handlers, for the claiming thread and
the heartbeat; the pairs that wake the last two and the event loop."""
QUERIES = 150
"""As many as one connection may keep from one chunk or turn to the next. Django would keep 9,000."""
GROWTH = 0.05
TICKS = 4
"""In a second."""
TOPICS = (TOPIC, TOPIC, TOPIC, "fault.loose", "fault.async", "soak.fails")
PROBE = re.compile(r"DEBUG (True|False): (\d+) queries")
IDLE_TRANSACTIONS = {
    "postgresql": (
        "SELECT pid, xact_start FROM pg_stat_activity WHERE datname = current_database() "
        "AND state LIKE 'idle in transaction%%' "
        "AND clock_timestamp() - state_change > %s * interval '1 second'"
    ),
    "mysql": (
        "SELECT id, trx_started FROM information_schema.innodb_trx JOIN information_schema.processlist "
        "ON id = trx_mysql_thread_id WHERE db = DATABASE() AND command = 'Sleep' AND time > %s"
    ),
}
"""The session and its transaction. MariaDB reads the two tables one after the other: a session that slept
at the first may be at work at the second, so only what is seen twice counts."""


def soak(using: str, *, seed: int, minutes: float, rate: int = 300, lease: int = 10) -> list[Result]:
    """``rate`` messages a second for two workers, one of them with DEBUG. Whether memory has grown is
    judged when that lasts for two minutes or more: before, it is still warming up."""
    oracle, dice = Oracle(using), random.Random(seed)
    with crew_for(using) as crew:
        watched = [_start(crew, debug=debug, lease=lease) for debug in (False, True)]
        idle = 0
        seen: set[Session] = set()
        for _ in _seconds_of_work(oracle, dice, int(minutes * 60), rate):
            before, seen = seen, _idle_transactions(using, lease)
            idle += len(before & seen)
            for one in watched:
                one.gauge.read()
        oracle.wait(120)
        problems = [*_of_the_transactions(idle), *_of_the_queries(using)]
        results = [oracle.result(f"{minutes:g} minutes at load", problems=problems)]
        results += [one.now(using).result(using, is_long=minutes >= 2) for one in watched]
        return [crew.judged(result) for result in results]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    debug: bool
    gauge: Gauge
    worker: UUID
    is_there: bool = True

    def now(self, using: str) -> Watched:
        return replace(self, is_there=worker_ids(using, [self.gauge.pid]) == [self.worker])

    def result(self, using: str, *, is_long: bool) -> Result:
        done = OutboxMessage._base_manager.using(using).filter(claimed_by=self.worker).count()
        each = self.gauge.growth / max(1, done / 3)
        return Result(
            scenario=f"memory with DEBUG {'on' if self.debug else 'off'}: {each:+.0f} bytes a message",
            database=connections[using].display_name,
            messages=done,
            problems=tuple(self.problems(using, done=done, is_long=is_long)),
        )

    def problems(self, using: str, *, done: int, is_long: bool) -> Iterator[str]:
        if not done:
            yield "it has done nothing"
        if not self.is_there:
            yield "it was replaced by another process"
        if set(self.gauge.threads) != {threads_of(using)}:
            yield f"it had {sorted(set(self.gauge.threads))} threads, not {threads_of(using)}"
        if max(self.gauge.sockets) > sockets_of(using):
            yield f"it had {max(self.gauge.sockets)} sockets; {sockets_of(using)} are enough"
        if max(third(self.gauge.sockets, 2)) > max(third(self.gauge.sockets, 1)):
            yield "the number of its sockets grew"
        if is_long and self.gauge.relative_growth > GROWTH:
            yield f"its memory grew by {self.gauge.relative_growth:.1%} from the second third to the last"


def threads_of(using: str) -> int:
    """Those for handlers, as many for the calls of async ones, and the worker's own."""
    return 2 * THREADS + OWN_THREADS + can_wake(connections[using])


def sockets_of(using: str) -> int:
    return SOCKETS + listener_sockets(using)


def _start(crew: Crew, *, debug: bool, lease: int) -> Watched:
    worker = crew.start(*OPTIONS, "--lease", str(lease), environment={"TEST_DEBUG": str(int(debug))})
    pid = worker.process.pid
    eventually(lambda: bool(worker_ids(crew.using, [pid])), seconds=60)
    (worker_id,) = worker_ids(crew.using, [pid])
    eventually(
        lambda: _awaited(crew.using) and thread_count(pid) == threads_of(crew.using), seconds=60, every=0.5
    )
    return Watched(debug=debug, gauge=Gauge(pid), worker=worker_id)


def _awaited(using: str) -> bool:
    """Async work for whoever takes it: the event loop and its threads start when they are needed."""
    return bool(enqueue_many([OutgoingMessage(topic="soak.awaited")] * 2 * THREADS, using=using))


def _seconds_of_work(oracle: Oracle, dice: random.Random, seconds: int, rate: int) -> Iterator[int]:
    """Produce, a little at a time; comes back each second."""
    began = time.monotonic()
    for tick in range(seconds * TICKS):
        if tick % TICKS == 0:
            enqueue("soak.probe", using=oracle.using)
            yield tick // TICKS
        oracle.produce(rate // TICKS, topic=dice.choice(TOPICS), together=25, rolled_back_every=50)
        time.sleep(max(0.0, began + (tick + 1) / TICKS - time.monotonic()))


def _idle_transactions(using: str, lease: int) -> set[Session]:
    """Sessions that have done nothing in their transaction for longer than a lease."""
    connection = connections[using]
    if connection.vendor not in IDLE_TRANSACTIONS:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(IDLE_TRANSACTIONS[connection.vendor], [lease])
        return set(cursor.fetchall())


def _of_the_transactions(idle: int) -> Iterator[str]:
    if idle:
        yield f"{idle} times a transaction was idle for longer than a lease"


def _of_the_queries(using: str) -> Iterator[str]:
    most: dict[str, int] = {}
    for name in Effect.objects.using(using).filter(name__startswith="DEBUG").values_list("name", flat=True):
        found = PROBE.fullmatch(name)
        assert found is not None
        most[found[1]] = max(most.get(found[1], 0), int(found[2]))
    if most.get("False", 0) or not 0 < most.get("True", 0) <= QUERIES:
        yield f"connections kept up to {most} queries; with DEBUG, 1 to {QUERIES} are right"


ENTRIES = [
    # SOAK_MINUTES=20 for a long one.
    Entry("soak", soak, {"minutes": float(os.environ.get("SOAK_MINUTES", "3"))}),
]
