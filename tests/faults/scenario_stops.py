"""SIGTERM: at random moments, and a second time.

A stop is no fault: nothing may be charged for it, and nothing is done twice, not even by handlers that
act outside the database.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable

from django.db.models import Q

from reliable_messaging.models import OutboxMessage, Status, Worker
from reliable_messaging.workers.stop import ECHO
from tests.testapp.models import Effect
from tests.workers import eventually

from .chaos import Entry
from .feeder import feeding
from .journal import Journal
from .oracle import TOPIC, Oracle
from .patience import patiently
from .result import Result
from .squad import Member, Squad, holders, squad_of, state_of

GRACE = 30.0
PATIENCE = 120.0
OPTIONS = ("--grace", str(GRACE), "--poll-max", "0.2", "--batch-size", "10", "--chunk-size", "5")
OUTSIDE = "fault.external"
TOPICS = (TOPIC, "fault.loose", TOPIC, OUTSIDE, "fault.async")
SLOW = {"TEST_STEPS": "15"}
ENDLESS = {"TEST_STEPS": "1000000"}
CHARGED = Q(failures__gt=0) | Q(transient_failures__gt=0) | Q(crashes__gt=0)


def stop_at_random(using: str, *, seed: int, stops: int, workers: int = 5) -> Result:
    """SIGTERM of busy workers, each at a random moment, some of them together: each ends with 0 inside its
    grace, leaves nothing claimed and no row of its own, and has charged nothing; and when all have ended,
    what is done and what has an effect are the same."""
    oracle, dice = Oracle(using), random.Random(seed)
    problems: list[str] = []
    with squad_of(using, *OPTIONS) as squad:
        with feeding(oracle, *TOPICS):
            for first in range(0, stops, workers):
                members = [squad.start(environment=SLOW) for _ in range(min(workers, stops - first))]
                problems += _stop_all(using, members, dice)
                problems += _left_behind(using, members)
        problems += _finish(oracle, squad)
        return squad.judged(oracle.result("SIGTERM at random moments", faults=stops, problems=problems))


def insist(using: str, *, seed: int, processes: int | None = None) -> Result:
    """A second SIGTERM, while handlers run that would need the whole grace: all processes end at once, the
    one in quarantine too, with the exit code of the signal. Another worker finishes their work."""
    oracle = Oracle(using)
    with squad_of(using, *OPTIONS, "--lease", "2") as squad:
        problems = _insist(oracle, squad, processes)
        squad.start()
        oracle.wait()
        return squad.judged(oracle.result("second SIGTERM", faults=1, problems=problems))


# The first signal


def _stop_all(using: str, members: list[Member], dice: random.Random) -> list[str]:
    told: dict[Member, float] = {}
    for member in members:
        eventually(lambda member=member: bool(holders(using, member.ids)), seconds=PATIENCE)  # type: ignore[misc]
        time.sleep(dice.uniform(0, 0.4))
        member.send(signal.SIGTERM)
        told[member] = time.monotonic()
    return [problem for member, since in told.items() for problem in _end_of(member, since)]


def _end_of(member: Member, since: float) -> list[str]:
    code = member.wait(PATIENCE)
    seconds = time.monotonic() - since
    late = [f"a worker took {seconds:.0f} s to stop"] if seconds > GRACE else []
    return [*late, f"a worker ended with {code}"] if code else late


def _left_behind(using: str, members: list[Member]) -> list[str]:
    """Now that none of them runs any more."""
    rows = OutboxMessage._base_manager.using(using)
    ids = [life.id for member in members for life in member.lives]
    counts = {
        "rows are still claimed": rows.filter(status=Status.CLAIMED),
        "rows were charged": rows.filter(CHARGED),
        "workers have left their row": Worker._base_manager.using(using).filter(pk__in=ids),
    }
    found = {what: patiently(using, queryset.count) for what, queryset in counts.items()}
    return [f"{count} {what}" for what, count in found.items() if count] + _disagreements(using)


def _disagreements(using: str) -> list[str]:
    """Between acks and effects: each done message has one, and no other has any."""
    done = OutboxMessage._base_manager.using(using).filter(status=Status.DONE)
    payloads = patiently(using, lambda: list(done.values_list("payload", flat=True)))
    names = patiently(using, lambda: list(Effect.objects.using(using).values_list("name", flat=True)))
    acks = Counter(str(json.loads(payload)["number"]) for payload in payloads)
    effects = Counter(names)
    return [
        f"number {number} has {acks[number]} acks and {effects[number]} effects"
        for number in sorted(acks | effects)
        if acks[number] != effects[number]
    ][:5]


def _finish(oracle: Oracle, squad: Squad) -> list[str]:
    code = squad.start("--burst").wait(PATIENCE)
    oracle.wait(0)
    return [f"the last worker ended with {code}"] if code else []


# The second signal


def _insist(oracle: Oracle, squad: Squad, processes: int | None) -> list[str]:
    """With one thread each, a worker runs one message and has claimed three more."""
    journal = Journal(squad.directory / "journal")
    workers = processes or 1
    oracle.produce(4 * workers + 1, topic=OUTSIDE, rolled_back_every=0)
    _make_suspect(oracle.using)
    options = () if processes is None else ("--processes", str(processes))
    member = squad.start(
        "--concurrency", "1", "--grace", "600", *options, environment={**journal.environment, **ENDLESS}
    )
    eventually(lambda: len(journal.begun()) == workers + 1, seconds=PATIENCE)
    eventually(lambda: _claimed(oracle.using) > 2 * workers, seconds=PATIENCE)
    member.send(signal.SIGTERM)
    eventually(lambda: _claimed(oracle.using) == workers + 1, seconds=PATIENCE)  # the rest was released
    present = [life.pid for life in member.lives if state_of(life.pid)]
    if not member.alive or len(present) < workers + 1:
        return ["it did not wait for its handlers"]
    time.sleep(2 * ECHO)
    member.send(signal.SIGTERM)
    code = member.wait(PATIENCE)
    return [*_orphans(present), *([] if code == 128 + signal.SIGTERM else [f"it ended with {code}"])]


def _make_suspect(using: str) -> None:
    rows = OutboxMessage._base_manager.using(using)
    rows.filter(pk=rows.order_by("id").values_list("pk", flat=True)[0]).update(crashes=1)


def _claimed(using: str) -> int:
    return patiently(using, OutboxMessage._base_manager.using(using).filter(status=Status.CLAIMED).count)


def _orphans(pids: Iterable[int], *, seconds: float = 10) -> list[str]:
    deadline = time.monotonic() + seconds
    left = list(pids)
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [pid for pid in left if state_of(pid)]
    return [f"process {pid} was left behind" for pid in left]


ENTRIES = [
    Entry("SIGTERM at random moments", stop_at_random, {"stops": 50}),
    Entry("second SIGTERM", insist),
    Entry("second SIGTERM, two processes", insist, {"processes": 2}),
]
