"""Zombies: workers that are stopped for three leases, and go on as if nothing had happened."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence

from django.db import connections

from reliable_messaging.failpoints import VARIABLE
from reliable_messaging.models import OutboxMessage, Status
from tests.testapp.models import Effect
from tests.workers import eventually

from .chaos import Entry
from .feeder import feeding
from .journal import Journal
from .oracle import TOPIC, Oracle
from .patience import patiently
from .result import Result
from .squad import Life, Member, Squad, holders, parent_of, squad_of
from .thief import Thief
from .zombie import PATIENCE, Snapshot, Zombie, stop, stopped

LEASE = 1.0
STOPPED_FOR = 3 * LEASE
CONCURRENCY = 4
OPTIONS = ("--lease", str(LEASE), "--poll-max", "0.2", "--batch-size", "10", "--chunk-size", "5")
MANY_CRASHES = {"TEST_MAX_CRASHES": "1000"}  # who waits for a zombie's locks may lose its claims too
OUTSIDE = "fault.external"
STEPS = 400

MOMENTS = (
    ("claim-locked", TOPIC),
    ("claim-committed", OUTSIDE),
    ("handler-start", OUTSIDE),
    ("before-ack", TOPIC),
    ("before-ack", OUTSIDE),
    ("before-commit", TOPIC),
)
ROWS_LOCKED = {"claim-locked", "before-commit"}
"""Where nobody can take the zombie's rows while it is stopped, unless the server ends its session."""
ALL_LOCKED = {*ROWS_LOCKED, "before-ack"}
"""Where nobody can write at all, if the database has a single write lock."""


def stop_at_random(using: str, *, seed: int, stops: int, at_once: int = 4) -> Result:
    """SIGSTOP of busy workers for three leases, then SIGCONT, until so many have lost something that way.
    Two others are never stopped. What was settled meanwhile stays as it was; no zombie begins more
    non-atomic work on an ended lease than it had threads; each goes on working, or replaces itself."""
    oracle, dice, snapshot = Oracle(using), random.Random(seed), Snapshot(using=using)
    faults, problems = 0, list[str]()
    with squad_of(using, *OPTIONS, environment=MANY_CRASHES) as squad:
        journal = Journal(squad.directory / "journal")
        members = [squad.start(environment=journal.environment) for _ in range(at_once + 2)]
        deadline = time.monotonic() + PATIENCE + stops * STOPPED_FOR
        with feeding(oracle, TOPIC, OUTSIDE, TOPIC, "fault.loose"):
            while faults < stops:
                assert time.monotonic() < deadline, f"only {faults} zombies have lost anything"
                zombies = _stop_busy(using, members[: min(at_once, stops - faults)], dice)
                time.sleep(STOPPED_FOR)
                stolen = [zombie.stolen() for zombie in zombies]
                faults += sum(map(bool, stolen))
                snapshot.take(row.pk for rows in stolen for row in rows if row.status == Status.DONE)
                problems += _wake(zombies, stolen, journal)
        oracle.wait()
        problems += snapshot.problems()
        return squad.judged(oracle.result("SIGSTOP at random moments", faults=faults, problems=problems))


def stop_while_acting(using: str, *, seed: int, times: int) -> Result:
    """What non-atomic handlers do outside, nobody can undo: the process ends hard, and begins anew, under
    a supervisor every other time. None of them gets far, none begins, none makes its effect."""
    oracle, problems = Oracle(using), list[str]()
    for number in range(seed, seed + times):
        with squad_of(using, *OPTIONS, environment=MANY_CRASHES) as squad:
            found = _stop_acting(oracle, squad, *(["--processes", "1"] if number % 2 else []))
            if found:
                squad.show_logs()
            problems += found
    return oracle.result("SIGSTOP of handlers that act outside", faults=times, problems=problems)


def stop_at_failpoints(using: str, *, seed: int, moments: Sequence[tuple[str, str]] = MOMENTS) -> Result:
    """Zombies that wake up in the middle of a claim or settlement, while another worker holds some of
    their rows and has settled others: these stay as they are, in every column."""
    oracle, problems = Oracle(using), list[str]()
    with squad_of(using, *OPTIONS, environment=MANY_CRASHES) as squad:
        for point, topic in moments:
            found = _stop_at(oracle, squad, point, topic, seed=seed)
            problems += [f"{point} of {topic}: {problem}" for problem in found]
        return squad.judged(oracle.result("SIGSTOP at failpoints", faults=len(moments), problems=problems))


# At random moments


def _stop_busy(using: str, members: Sequence[Member], dice: random.Random) -> list[Zombie]:
    """Those who have claimed something, one at least, each at a moment of its own."""
    found: list[Member] = []

    def find() -> bool:
        by_id = {life.id: member for member in members for life in member.living() if life.pid == member.pid}
        found[:] = [by_id[key] for key in holders(using, by_id)]
        return bool(found)

    eventually(find, seconds=PATIENCE)
    zombies = []
    for member in found:
        time.sleep(dice.uniform(0, 0.1))
        zombies.append(stop(using, member))
    return zombies


def _wake(zombies: list[Zombie], stolen: list[list[OutboxMessage]], journal: Journal) -> list[str]:
    for zombie in zombies:
        zombie.wake()
    problems = []
    for zombie, rows in zip(zombies, stolen, strict=True):
        zombie.wait_for_work()
        begun = journal.begun(after=zombie.woken_at, of=zombie.runs(rows))
        if len(begun) > CONCURRENCY:
            problems.append(f"a zombie began {len(begun)} handlers on leases that had ended")
    return problems


# Non-atomic handlers


def _stop_acting(oracle: Oracle, squad: Squad, *options: str) -> list[str]:
    journal = Journal(squad.directory / "journal")
    numbers = oracle.produce(2 * CONCURRENCY, topic=OUTSIDE, rolled_back_every=0)
    slow = squad.start(*options, environment={**journal.environment, "TEST_STEPS": str(STEPS)})
    eventually(lambda: len(journal.begun()) == CONCURRENCY, seconds=PATIENCE)
    (life,) = slow.lives
    zombie = stop(oracle.using, slow, pid=life.pid)
    running = journal.begun()
    squad.start(environment=journal.environment)  # does in one step what the other has many for
    time.sleep(STOPPED_FOR)
    oracle.wait()
    stolen = zombie.runs(zombie.stolen())
    left = STEPS * len(running) - len(journal.lines(of=running))
    zombie.wake()
    eventually(lambda: _has_successor(slow, life), seconds=PATIENCE)
    late = journal.lines(after=zombie.woken_at, of=stolen)
    checks = {
        "nobody took over": len(stolen) < len(numbers),
        "the process did not end hard": "this process ends" not in slow.log.read_text(),
        f"{len(late)} of {left} steps were still made": len(late) * 10 > left,
        "a handler began on a lease that had ended": any(line.step == 0 for line in late),
        "a stale handler made its effect": _effects(oracle.using, numbers) > len(numbers),
    }
    return [problem for problem, is_so in checks.items() if is_so]


def _has_successor(member: Member, life: Life) -> bool:
    """It has begun anew under the same process id, or its supervisor has started another one."""
    later = member.lives[member.lives.index(life) + 1 :]
    if life.pid == member.pid:
        return any(other.pid == life.pid for other in later)
    return any(parent_of(other.pid) == member.pid for other in later)


def _effects(using: str, numbers: Iterable[int]) -> int:
    made = Effect.objects.using(using).filter(name__in=[str(number) for number in numbers])
    return patiently(using, made.count)


# In the middle of a settlement


def _stop_at(oracle: Oracle, squad: Squad, point: str, topic: str, *, seed: int) -> list[str]:
    using = oracle.using
    journal = Journal(squad.directory / f"journal_{len(squad.members)}")
    oracle.produce(2 * CONCURRENCY, topic=topic, rolled_back_every=0)
    member = squad.start(environment={VARIABLE: f"{point}:stop:1:{seed}", **journal.environment})
    zombie = stopped(using, member)
    time.sleep(STOPPED_FOR)
    thief, snapshot = Thief(using), Snapshot(using=using)
    if connections[using].features.has_select_for_update or point not in ALL_LOCKED:
        thief.steal()
        snapshot.take(thief.has)
    stolen = zombie.runs(zombie.stolen())
    zombie.wake()
    with zombie.kept_awake():
        fresh = oracle.produce(1, rolled_back_every=0)
        eventually(lambda: _effects(using, fresh) == 1, seconds=PATIENCE)
        problems = snapshot.problems()
        thief.finish()
        oracle.wait()
    member.kill()
    if thief.tried and point not in ROWS_LOCKED and not stolen:
        problems.append("nothing could be stolen")
    begun = journal.begun(after=zombie.woken_at, of=stolen)
    # One that has boarded is in its handler's hands, if only just: that is what "running" means.
    if len(begun) > (0 if point == "claim-committed" else CONCURRENCY):
        problems.append(f"{len(begun)} handlers began on leases that had ended")
    return problems


ENTRIES = [
    Entry("SIGSTOP at random moments", stop_at_random, {"stops": 30, "at_once": 5}),
    Entry("SIGSTOP of handlers that act outside", stop_while_acting, {"times": 2}),
    Entry("SIGSTOP at failpoints", stop_at_failpoints),
]
