"""kill -9: at each failpoint, and at random moments.

What is measured as recovery, on the database: from the moment at which the scenario saw the process
dead until a row that it had claimed is no longer held by that claim. The row is then ready again (it
was reaped, and is a suspect), or has been claimed by another worker or settled since. How long a
suspect then waits for its turn in quarantine is not part of it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import Error, connections, transaction

from reliable_messaging.failpoints import POINTS, VARIABLE
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.outbox import queue
from tests.testapp.models import Order
from tests.workers import eventually

from .chaos import Entry
from .feeder import feeding
from .oracle import TOPIC, Oracle, write
from .patience import patiently
from .producer import start_producer
from .recovery import Recovery
from .result import Result
from .squad import Life, Member, Squad, holders, squad_of, state_of

LEASE, POLL_MAX = 2.0, 0.2
SLACK = 1.0
"""Seconds that recovery may take beyond lease and poll interval, on a machine that is not overloaded."""
OPTIONS = ("--lease", str(LEASE), "--poll-max", str(POLL_MAX), "--batch-size", "10", "--chunk-size", "5")
MANY_CRASHES = {"TEST_MAX_CRASHES": "1000"}  # innocent neighbours of so many murders are not to be blamed
TOPICS = (TOPIC, "fault.external", TOPIC, "fault.loose", "fault.async")
LASTING = {"TEST_STEPS": "40"}  # more than a second of the handler, or there would be nothing to renew

PORTABLE = {"TEST_FAST_PATH": "0"}  # a single statement has no moment between its lock and its update

PRODUCER_POINT = "enqueue-before-commit"
SCHEDULER_POINTS = ("handed-over", "jobs-planned")
WORKER_POINTS = tuple(point for point in POINTS if point not in (PRODUCER_POINT, *SCHEDULER_POINTS))
HOLDING = {"claim-committed", "handler-start", "handler-effect", "before-ack", "before-commit"}
"""Points at which a worker has certainly claimed something."""
EACH_PRODUCES = 30
VANISHING = "vanishing"
PATIENCE = 120.0
EVERY = 0.02


def kill_at_failpoints(using: str, *, seed: int, times: int, slack: float = SLACK) -> Result:
    """So many rounds, in each of which one worker dies at each failpoint; another worker, who has none,
    finishes the work. At the point in ``enqueue`` it is a producer who dies."""
    oracle, recovery = Oracle(using), Recovery(using)
    problems: list[str] = []
    with squad_of(using, *OPTIONS, environment=MANY_CRASHES) as squad:
        squad.start()
        for number in range(times):
            with feeding(oracle, *TOPICS), _producer(oracle, seed + number) as producer:
                problems += _kill_workers(squad, oracle, recovery, seed=seed + number)
                problems += _examine_producer(oracle, producer)
            recovery.settle()
            oracle.wait()  # what is left would make every victim of the next round open a quarantine
        return squad.judged(
            oracle.result(
                "kill -9 at each failpoint",
                faults=recovery.faults + times,
                recovery=recovery.longest,
                allowed_recovery=LEASE + POLL_MAX + slack,
                problems=problems,
            )
        )


def kill_at_random(using: str, *, seed: int, kills: int, workers: int = 4, slack: float = SLACK) -> Result:
    """Any of the workers, or of their quarantine children, at a random moment at which it has claimed
    something; it is replaced. All other workers but one are up at that moment."""
    oracle, recovery, dice = Oracle(using), Recovery(using), random.Random(seed)
    hits = 0
    with squad_of(using, *OPTIONS, environment=MANY_CRASHES) as squad:
        with feeding(oracle, *TOPICS):
            while hits < kills:
                for _ in range(workers - len(squad.alive)):
                    squad.start()
                victim = _choose(squad, recovery, dice, up=workers - 1)
                _kill(victim)
                hits += bool(recovery.fault([victim.id]))
        recovery.settle()
        oracle.wait()
        return squad.judged(
            oracle.result(
                "kill -9 at random moments",
                faults=hits,
                recovery=recovery.longest,
                allowed_recovery=LEASE + POLL_MAX + slack,
            )
        )


# Producers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Producer:
    process: subprocess.Popen[bytes]
    numbers: list[int]


@contextmanager
def _producer(oracle: Oracle, seed: int) -> Iterator[_Producer]:
    numbers = oracle.presume(EACH_PRODUCES)
    process = start_producer(oracle.using, numbers, {VARIABLE: f"{PRODUCER_POINT}:kill:0.3:{seed}"})
    try:
        yield _Producer(process=process, numbers=numbers)
    finally:
        process.kill()
        process.wait()


def _examine_producer(oracle: Oracle, producer: _Producer) -> list[str]:
    code = producer.process.wait(PATIENCE)
    written = Order.objects.using(oracle.using).filter(number__in=producer.numbers)
    if code == -signal.SIGKILL and patiently(oracle.using, written.count) < len(producer.numbers):
        return []
    return [f"{PRODUCER_POINT}: the producer was not killed in time: it ended with {code}"]


# Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Victim:
    point: str
    member: Member


def _kill_workers(squad: Squad, oracle: Oracle, recovery: Recovery, *, seed: int) -> list[str]:
    victims = [_start_victim(squad, point, seed) for point in WORKER_POINTS]
    problems: list[str] = []
    deadline, vanish_at = time.monotonic() + PATIENCE, time.monotonic()
    while victims and time.monotonic() < deadline:
        for victim in [victim for victim in victims if not victim.member.alive]:
            victims.remove(victim)
            problems += _examine(victim, recovery)
        if time.monotonic() > vanish_at and any(victim.point == "sweep" for victim in victims):
            vanish_at = time.monotonic() + LEASE / 2
            _vanish(oracle)
        recovery.look()
        time.sleep(EVERY)
    for victim in victims:
        victim.member.kill()
    return [*problems, *(f"{victim.point}: nobody died there" for victim in victims)]


def _start_victim(squad: Squad, point: str, seed: int) -> _Victim:
    environment = {VARIABLE: f"{point}:kill:0.5:{seed}"}
    if point == "renew":
        environment |= LASTING
    if point == "claim-locked":
        environment |= PORTABLE
    return _Victim(point=point, member=squad.start(environment=environment))


def _examine(victim: _Victim, recovery: Recovery) -> list[str]:
    code = victim.member.wait()
    recovery.fault(victim.member.ids)
    if code != -signal.SIGKILL:
        return [f"{victim.point}: the process ended with {code}"]
    if victim.point in HOLDING and not _left_behind(recovery.using, victim.member):
        return [f"{victim.point}: it had claimed nothing"]
    return []


def _left_behind(using: str, member: Member) -> int:
    """Unfinished rows that it was the last to claim. They may have been reaped meanwhile, on a machine
    so slow that their leases had ended before it died."""
    rows = OutboxMessage._base_manager.using(using).filter(
        claimed_by__in=member.ids, status__in=[Status.READY, Status.CLAIMED]
    )
    return patiently(using, rows.count)


def _vanish(oracle: Oracle) -> None:
    """Claim something, and be never heard of again: work for whoever reaps. It is made in the same
    transaction, because workers that are fast enough leave nothing to be claimed."""
    numbers = oracle.presume(2)
    try:
        with transaction.atomic(using=oracle.using):
            write(oracle.using, numbers, queue=VANISHING)
            queue.using(oracle.using).claim(limit=len(numbers), queues=[VANISHING], lease=LEASE / 4)
    except Error:
        connections[oracle.using].close()


def _choose(squad: Squad, recovery: Recovery, dice: random.Random, *, up: int) -> Life:
    wake_at, deadline = time.monotonic() + dice.uniform(0, 0.3), time.monotonic() + PATIENCE
    while True:
        recovery.look()
        present = [lives for member in squad.members if (lives := member.living())]
        if time.monotonic() > wake_at and len(present) >= up:
            by_id = {life.id: life for lives in present for life in lives}
            if busy := holders(squad.using, by_id):
                return by_id[dice.choice(sorted(busy))]
        assert time.monotonic() < deadline, "no worker was busy"
        time.sleep(EVERY)


def _kill(victim: Life) -> None:
    os.kill(victim.pid, signal.SIGKILL)
    eventually(lambda: not state_of(victim.pid))


ENTRIES = [
    Entry("kill -9 at each failpoint", kill_at_failpoints, {"times": 5}),
    Entry("kill -9 at random moments", kill_at_random, {"kills": 100}),
]
