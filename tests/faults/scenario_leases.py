"""Many processes want one lease; they are stopped for longer than it lasts, and killed.

Nobody can keep a stopped process from going on later. But never do two hold the lease by the database's
clock, and what compares tokens takes no write of one whose time was over."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from django.db import connections

from reliable_messaging import leases
from tests.testapp.models import Effect, Order

from .chaos import Entry as ChaosEntry
from .contender import NAME, PROTECTED, Entry, Journal, start_contender
from .result import Result

DURATION = 0.5
"""Seconds that the lease lasts."""
STOPPED = (1.2 * DURATION, 2.5 * DURATION)
PATIENCE = 60.0


def contend(using: str, *, seed: int, contenders: int, seconds: float) -> Result:
    """Every second fault is a SIGSTOP for longer than the lease; some are kills, with a successor."""
    dice = random.Random(seed)
    Order.objects.using(using).create(number=0)
    with TemporaryDirectory(prefix="rm_leases_") as directory:
        journal, log = Path(directory) / "journal", Path(directory) / "log"

        def start() -> subprocess.Popen[bytes]:
            return start_contender(using, journal, duration=DURATION, seed=dice.randrange(10**9), log=log)

        processes = [start() for _ in range(contenders)]
        try:
            faults = _disturb(using, processes, start, journal, seconds=seconds, dice=dice)
            _finish(processes)
            problems = [*_judge(using, Journal(journal).entries())]
            return Result(
                scenario=f"{contenders} contenders for a lease",
                database=connections[using].display_name,
                messages=sum(entry.what == "begin" for entry in Journal(journal).entries()),
                faults=faults,
                problems=tuple(problems),
            )
        finally:
            for process in processes:
                _end(process)
            print(log.read_text()[-3000:])


def _disturb(
    using: str,
    processes: list[subprocess.Popen[bytes]],
    start: Callable[[], subprocess.Popen[bytes]],
    journal: Path,
    *,
    seconds: float,
    dice: random.Random,
) -> int:
    """Whoever holds the lease is the favourite victim; returns how many faults there were."""
    deadline = time.monotonic() + PATIENCE
    while not journal.exists():
        assert time.monotonic() < deadline, "nobody got the lease"
        time.sleep(0.05)
    until, faults = time.monotonic() + seconds, 0
    # A run in which no stale write was tried shows nothing: chance may want a few more faults.
    while time.monotonic() < until or (
        time.monotonic() < until + PATIENCE and not _refused(Journal(journal).entries())
    ):
        time.sleep(dice.uniform(0.05, 0.3))
        victim = _victim(using, processes, dice)
        if dice.random() < 0.2:
            _end(processes[victim])
            processes[victim] = start()
        else:
            processes[victim].send_signal(signal.SIGSTOP)
            time.sleep(dice.uniform(*STOPPED))
            processes[victim].send_signal(signal.SIGCONT)
        faults += 1
    return faults


def _refused(entries: Sequence[Entry]) -> int:
    """How many writes of stale holders there were."""
    return sum(entry.what == "write" and not entry.accepted for entry in entries)


def _victim(using: str, processes: Sequence[subprocess.Popen[bytes]], dice: random.Random) -> int:
    holder = leases.holder(NAME, using=using)
    pids = [str(process.pid) for process in processes]
    pid = "" if holder is None else holder.owner.rpartition(":")[2]
    return pids.index(pid) if pid in pids else dice.randrange(len(processes))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _finish(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    for process in processes:
        assert process.wait(timeout=PATIENCE) == 0, "a contender has failed"


def _judge(using: str, entries: Sequence[Entry]) -> Iterator[str]:
    begins = {entry.token: entry.at for entry in entries if entry.what == "begin"}
    ends = {entry.token: entry.at for entry in entries if entry.what == "end"}
    if len(begins) != sum(entry.what == "begin" for entry in entries):
        yield "a token was handed out twice"
    for earlier, later in pairwise(sorted(begins)):
        if begins[later] < begins[earlier]:
            yield f"token {later} was handed out before token {earlier}"
        # Of one that was killed nobody knows how long it thought to have it.
        if earlier in ends and begins[later] < ends[earlier]:
            yield f"token {later} was handed out {ends[earlier] - begins[later]} before {earlier} was over"
    yield from _stale_writes(using)
    if not _refused(entries):
        yield "no stale write was even tried: this run shows nothing"
    if leases.holder(NAME, using=using) is not None and len(begins) < 2:
        yield "one process had it all the time"


def _stale_writes(using: str) -> Iterator[str]:
    notes = Effect.objects.using(using).filter(name__startswith=PROTECTED).order_by("pk")
    tokens = [int(name.split()[1]) for name in notes.values_list("name", flat=True)]
    for earlier, later in pairwise(tokens):
        if later < earlier:
            yield f"a write of token {later} was accepted after one of {earlier}"


ENTRIES = [ChaosEntry("leases", contend, {"contenders": 20, "seconds": 60.0})]
