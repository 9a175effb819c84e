"""Zombies: workers that are stopped for three leases, and go on as if nothing had happened."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from django.db import connections

from reliable_messaging.failpoints import VARIABLE
from reliable_messaging.models import Status
from tests.testapp.models import Effect
from tests.workers import eventually

from .chaos import Entry
from .feeder import feeding
from .journal import Journal
from .oracle import TOPIC, Oracle
from .patience import patiently
from .result import Result
from .scenario_kills import PORTABLE
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


def stop_at_random(using: str, *, seed: int, stops: int, zombies: int = 5) -> Result:
    """SIGSTOP of busy workers for three leases, then SIGCONT, so many times in all; stops at which nothing
    was stolen do not count. One more worker is never stopped. What was settled meanwhile stays as it was;
    no zombie begins more non-atomic work on ended leases than it has threads; each goes on working, or
    replaces itself."""
    oracle, snapshot = Oracle(using), Snapshot(using=using)
    with squad_of(using, *OPTIONS, environment=MANY_CRASHES) as squad:
        journal = Journal(squad.directory / "journal")
        busy = {**journal.environment, "TEST_STEPS": "10"}  # most have claimed something at any moment
        members = [squad.start(environment=busy) for _ in range(zombies + 1)]
        shares = [len(range(number, stops, zombies)) for number in range(zombies)]
        with feeding(oracle, TOPIC, OUTSIDE, OUTSIDE), ThreadPoolExecutor(zombies) as pool:
            haunts = [
                pool.submit(_haunt, snapshot, member, journal, random.Random(seed + number), share)
                for number, (member, share) in enumerate(zip(members, shares, strict=False))
            ]
            problems = [problem for haunt in haunts for problem in haunt.result()]
        oracle.wait()
        problems += snapshot.problems()
        return squad.judged(oracle.result("SIGSTOP at random moments", faults=stops, problems=problems))


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


def _haunt(
    snapshot: Snapshot, member: Member, journal: Journal, dice: random.Random, stops: int
) -> list[str]:
    """In a thread of its own, with a worker of its own."""
    problems, tries = list[str](), 0
    try:
        while stops:
            assert tries < 20, "nothing could be stolen"
            stolen, begun = _stop_once(snapshot, member, journal, dice)
            stops, tries = (stops - 1, 0) if stolen else (stops, tries + 1)
            if begun > CONCURRENCY:
                problems.append(f"a zombie began {begun} handlers on leases that had ended")
    finally:
        connections.close_all()
    return problems


def _stop_once(snapshot: Snapshot, member: Member, journal: Journal, dice: random.Random) -> tuple[int, int]:
    """Returns how many rows were stolen from it, and how many of them it has begun all the same."""
    eventually(lambda: _is_busy(snapshot.using, member), seconds=PATIENCE)
    time.sleep(dice.uniform(0, 0.1))
    zombie = stop(snapshot.using, member)
    time.sleep(STOPPED_FOR)
    stolen = zombie.stolen()
    snapshot.take(row.pk for row in stolen if row.status == Status.DONE)
    zombie.wake()
    zombie.wait_for_work()
    return len(stolen), len(journal.begun(after=zombie.woken_at, of=zombie.runs(stolen)))


def _is_busy(using: str, member: Member) -> bool:
    return bool(holders(using, member.ids[-1:]))


# Non-atomic handlers


def _stop_acting(oracle: Oracle, squad: Squad, *options: str) -> list[str]:
    journal = Journal(squad.directory / "journal")
    numbers = oracle.produce(2 * CONCURRENCY, topic=OUTSIDE, rolled_back_every=0)
    slow = squad.start(*options, environment={**journal.environment, "TEST_STEPS": str(STEPS)})
    eventually(lambda: len(journal.begun()) == CONCURRENCY, seconds=PATIENCE)
    (life,) = slow.lives
    zombie = _stop_without_locks(oracle.using, slow, life)
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


def _stop_without_locks(using: str, member: Member, life: Life) -> Zombie:
    """Not in a transaction of its heartbeat: nobody could take over then."""
    while (zombie := stop(using, member, pid=life.pid)).holds_locks():
        zombie.wake()
    return zombie


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
    environment = {VARIABLE: f"{point}:stop:1:{seed}", **journal.environment}
    if point == "claim-locked":
        environment |= PORTABLE
    member = squad.start(environment=environment)
    zombie = stopped(using, member)
    time.sleep(STOPPED_FOR)
    thief, snapshot = Thief(using), Snapshot(using=using)
    locked = zombie.holds_locks()
    if connections[using].features.has_select_for_update or not locked:
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
    if zombie.claimed and not locked and not stolen:
        problems.append("nothing could be stolen")
    begun = journal.begun(after=zombie.woken_at, of=stolen)
    # One that has boarded is in its handler's hands, if only just: that is what "running" means.
    if len(begun) > (0 if point == "claim-committed" else CONCURRENCY):
        problems.append(f"{len(begun)} handlers began on leases that had ended")
    return problems


ENTRIES = [
    Entry("SIGSTOP at random moments", stop_at_random, {"stops": 30}),
    Entry("SIGSTOP of handlers that act outside", stop_while_acting, {"times": 2}),
    Entry("SIGSTOP at failpoints", stop_at_failpoints),
]
