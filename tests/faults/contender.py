"""One of many processes that want the same lease, and may be stopped or killed at any moment.

python -m tests.faults.contender ALIAS JOURNAL DURATION SEED

Each holding becomes lines of the journal, with times by the database's clock. Every second holder is
careless: it does not ask whether it still has the lease, and writes to what the lease protects all the same.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
NAME = "fault.lease"
PROTECTED = "protected"


class Entry(NamedTuple):
    what: str
    """``begin``, ``end`` or ``write``."""
    token: int
    at: datetime
    accepted: bool


class Journal:
    """Whole lines, appended: also when a process is killed, and whoever else writes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, what: str, token: int, at: datetime, *, accepted: bool = True) -> None:
        line = f"{what} {token} {at.isoformat()} {accepted:d}\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def entries(self) -> list[Entry]:
        return [_parse(line) for line in self._path.read_text().splitlines()]


def _parse(line: str) -> Entry:
    what, token, at, accepted = line.split()
    return Entry(what, int(token), datetime.fromisoformat(at), accepted == "1")


def start_contender(
    using: str, journal: Path, *, duration: float, seed: int, log: Path
) -> subprocess.Popen[bytes]:
    arguments = [using, str(journal), str(duration), str(seed)]
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.contender", *arguments],
            cwd=ROOT,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
            stdin=subprocess.PIPE,  # its parent lives as long as this is open
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def main(using: str, journal_path: str, duration: str, seed: str) -> None:
    import django

    django.setup()
    import select

    from django.db import Error, connections

    dice, journal = random.Random(int(seed)), Journal(Path(journal_path))
    while not select.select([sys.stdin], [], [], 0)[0]:
        try:
            _compete(using, journal, timedelta(seconds=float(duration)), dice)
        except Error:
            connections[using].close()  # somebody was stopped while he had a lock


def _compete(using: str, journal: Journal, duration: timedelta, dice: random.Random) -> None:
    from reliable_messaging import LeaseLost, clock, leases

    held = leases.acquire(NAME, duration=duration, wait=5, using=using)
    if held is None:
        return
    journal.write("begin", held.token, held.expires_at - duration)
    careless = dice.random() < 0.5
    try:
        for _ in range(dice.randrange(1, 8)):
            if not careless:
                held.raise_if_lost()
            journal.write("write", held.token, held.server_time, accepted=_write(using, held.token))
            time.sleep(dice.uniform(0, duration.total_seconds() / 3))
        if not careless:
            held.raise_if_lost()
        before = clock.read(using)
        held.release()
        journal.write("end", held.token, before)
    except LeaseLost:
        journal.write("end", held.token, held.expires_at)


def _write(using: str, token: int) -> bool:
    """To a resource that refuses a smaller token than it has seen. What it accepts it notes."""
    from django.db import transaction

    from tests.testapp.models import Effect, Order

    with transaction.atomic(using=using):
        accepted = Order.objects.using(using).filter(number__lte=token).update(number=token)
        if accepted:
            Effect.objects.using(using).create(name=f"{PROTECTED} {token}")
    return bool(accepted)


if __name__ == "__main__":
    main(*sys.argv[1:])
