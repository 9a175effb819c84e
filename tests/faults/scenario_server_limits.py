"""Limits of the server: time-outs, deadlocks, no more connections, a pooler in between."""

from __future__ import annotations

import signal
import time

from django.db import connections

from tests.services import reached_at
from tests.testapp.limits import PAIRS, SHARED, sides
from tests.testapp.models import Effect
from tests.workers import eventually

from .chaos import Entry
from .in_the_way import Hogs, cross_claims, held, locked_claims, locked_shared_row, locked_table
from .oracle import Oracle
from .patience import patiently
from .proxy import Proxy
from .result import Result
from .scenario_connections import LONG, ON_A_WIRE
from .server import HOST
from .server_sessions import end_other_sessions, other_sessions
from .servers import OWN, PgBouncer, where_available
from .trial import Trial
from .wired import ALLOWED, Outage, Workers, working

LOCKS = {
    "postgres": {"PGOPTIONS": "-c lock_timeout=300ms"},
    "mariadb": {"TEST_MARIADB_SESSION": "innodb_lock_wait_timeout = 1, lock_wait_timeout = 1"},
}
STATEMENTS = {
    # Without a limit for locks of the project's, a worker would set one, which is shorter.
    "postgres": {"PGOPTIONS": "-c statement_timeout=500ms -c lock_timeout=9s"},
    "mariadb": {"TEST_MARIADB_SESSION": "max_statement_time = 0.5"},
}
WORDS = {
    "postgres": ("due to lock timeout", "due to statement timeout"),
    "mariadb": ("Lock wait timeout exceeded", "max_statement_time exceeded"),
}
BLOCKS = (locked_table, locked_claims, locked_shared_row)
FEW_MESSAGES = 20
LONGEST_HELD = 7.0
"""Longer than each of the limits, and than the longest pause of a worker after errors."""
FEW = {
    "postgres": {"max_connections": 14, "superuser_reserved_connections": 0},
    "mariadb": {"max_connections": 13},  # and one more for an administrator
}
DEADLOCKS = {
    "postgresql": "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
    "mysql": "SELECT variable_value FROM information_schema.global_status "
    "WHERE variable_name = 'Innodb_deadlocks'",
}


def timeouts(using: str, *, seed: int, rounds: int) -> Result:
    """Two workers, one with a limit for locks, one with a limit for statements, meet locks that are
    held for longer: claims, settlements, renewals and handlers fail."""
    trial = Trial(using, seed)
    Effect.objects.using(using).create(name=SHARED)
    with (
        working(using, environment=LOCKS[using]) as one,
        working(using, environment=STATEMENTS[using]) as other,
    ):
        limits = [Limit(workers, words) for workers, words in zip((one, other), WORDS[using], strict=True)]
        one.warm_up(trial.oracle)
        for block in BLOCKS * rounds:
            trial.keep_busy()
            trial.oracle.produce(FEW_MESSAGES, topic="limit.slow", together=FEW_MESSAGES)
            trial.strike()
            with held(block, using):
                if block is locked_shared_row:
                    trial.oracle.produce(FEW_MESSAGES, topic="limit.shared", together=FEW_MESSAGES)
                wait_until_met(limits)
            trial.wait_until_back()
            trial.recovery.settle()
        trial.oracle.wait()
        trial.problems += [problem for limit in limits for problem in limit.problems()]
        return one.checked(other.checked(trial.result("time-outs of the server", allowed=ALLOWED)))


class Limit:
    """One that these workers have, and how often their log says that they met it."""

    def __init__(self, workers: Workers, words: str) -> None:
        self._workers = workers
        self._words = words

    @property
    def met(self) -> int:
        return self._workers.log.count(self._words)

    def problems(self) -> list[str]:
        """Both the worker's own statements and handlers must have met it."""
        met = {" ".join(line.split()[3:5]) for line in self._workers.log.splitlines() if self._words in line}
        wanted = {"own": {"database error", "settlement put"}, "handler's": {"message retrying"}}
        return [
            f"no {whose} line says {self._words!r}" for whose, events in wanted.items() if not met & events
        ]


def wait_until_met(limits: list[Limit]) -> None:
    """Until each is met once more, but not for ever: one that pauses, or has claimed nothing, does not."""
    before, deadline = [limit.met for limit in limits], time.monotonic() + LONGEST_HELD
    while any(limit.met == met for limit, met in zip(limits, before, strict=True)):
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)


def crossed_handlers(using: str, *, seed: int, messages: int) -> Result:
    """Handlers of two workers lock the same rows in opposite orders."""
    oracle, before = Oracle(using), deadlocks(using)
    names = [name for pair in range(PAIRS) for name in sides(pair)]
    Effect.objects.using(using).bulk_create([Effect(name=name) for name in names])
    oracle.produce(messages, topic="limit.crossing", together=messages)
    with working(using, count=2, environment={}) as workers:
        oracle.wait()
        return workers.checked(_with_deadlocks(oracle, "handlers in deadlock", before))


def crossed_claims(using: str, *, seed: int, times: int) -> Result:
    """Somebody locks claimed rows in the order opposite to that of settlements and renewals."""
    trial, before = Trial(using, seed), deadlocks(using)
    with working(using, count=2, environment={}) as workers:
        workers.warm_up(trial.oracle)
        deadline = time.monotonic() + 60
        while deadlocks(using) < before + times and time.monotonic() < deadline:
            trial.keep_busy()
            cross_claims(using)
        trial.oracle.wait()
        return workers.checked(_with_deadlocks(trial.oracle, "the queue in deadlock", before))


def exhausted(using: str, *, seed: int, times: int) -> Result:
    """All connections of the server are taken: when the worker starts, and while it is busy, every
    other time but for two."""
    trial = Trial(using, seed)
    with OWN[using](**FEW[using]) as server, server.standing_in():
        with Proxy((HOST, server.port)) as proxy, Hogs(server) as hogs:
            environment = {**server.environment, **reached_at(using, proxy.address)}
            trial.oracle.produce(1)
            hogs.take_all()
            with working(using, environment=environment) as workers:
                eventually(lambda: "waiting for the database" in workers.log)
                hogs.leave()
                workers.warm_up(trial.oracle)
                for number in range(times):
                    trial.keep_busy()
                    _squeeze(using, hogs)
                    trial.strike()
                    outage = Outage(workers, proxy)
                    hogs.leave(2 * (number % 2))
                    time.sleep(LONG)
                    trial.problems += outage.problems()
                    hogs.leave()
                    trial.wait_until_back()
                    trial.recovery.settle()
                return workers.checked(trial.result("no more connections", allowed=ALLOWED))


def through_pgbouncer(using: str, *, seed: int, times: int, pool: int) -> Result:
    """In transaction mode; workers are killed, and so is PgBouncer itself."""
    trial = Trial(using, seed)
    with PgBouncer(default_pool_size=pool) as bouncer:
        with working(using, count=2, environment=bouncer.environment) as workers:
            workers.warm_up(trial.oracle)
            for number in range(times):
                trial.keep_busy()
                if number % 3 == 2:
                    bouncer.end(signal.SIGKILL)
                    bouncer.start()
                else:
                    workers.kill_one(trial.dice)
                trial.strike()
                trial.wait_until_back()
                trial.recovery.settle()
                if (sessions := len(other_sessions(using))) > pool:
                    trial.problems.append(f"{sessions} sessions, and {pool} are in the pool")
            return workers.checked(trial.result(f"PgBouncer, pool of {pool}", allowed=ALLOWED))


def deadlocks(using: str) -> int:
    """How many the server has seen. PostgreSQL tells up to a second late."""

    def ask() -> int:
        connection = connections[using]
        with connection.cursor() as cursor:
            cursor.execute(DEADLOCKS[connection.vendor])
            return int(cursor.fetchone()[0])

    return patiently(using, ask)


def _with_deadlocks(oracle: Oracle, name: str, before: int) -> Result:
    eventually(lambda: deadlocks(oracle.using) > before, seconds=10)
    return oracle.result(name, faults=deadlocks(oracle.using) - before)


def _squeeze(using: str, hogs: Hogs) -> None:
    """Until the hogs have what the worker had."""
    for _ in range(100):
        end_other_sessions(using)
        hogs.take_all()
        if not other_sessions(using):
            return
    raise AssertionError("the worker still has connections")


behind_pgbouncer = where_available(through_pgbouncer, {"postgres": PgBouncer})

ENTRIES = [
    Entry("time-outs", timeouts, {"rounds": 3}, ON_A_WIRE),
    Entry("crossed handlers", crossed_handlers, {"messages": 60}, ON_A_WIRE),
    Entry("crossed claims", crossed_claims, {"times": 10}, ON_A_WIRE),
    Entry("no more connections", where_available(exhausted, OWN), {"times": 4}, ON_A_WIRE),
    Entry("pgbouncer", behind_pgbouncer, {"times": 9, "pool": 10}, ("postgres",)),
    Entry("pgbouncer, full pool", behind_pgbouncer, {"times": 3, "pool": 3}, ("postgres",)),
]
