"""A worker that is stopped while it holds claims, and what becomes of them.

A row is **stolen** when the claim that the zombie had at its stop is over before it wakes: the row was
reaped, and another worker may have claimed or settled it since. Nothing that the zombie does may change it.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import OperationalError, connections, transaction
from django.db.models import QuerySet

from reliable_messaging import clock
from reliable_messaging.models import OutboxMessage
from tests.workers import eventually

from .journal import Run
from .patience import patiently
from .squad import Member, held, state_of

PATIENCE = 120.0


@dataclass(slots=True, kw_only=True)
class Zombie:
    using: str
    member: Member
    pid: int
    claimed: dict[UUID, OutboxMessage]
    """The rows that it had claimed when it was stopped, as they were then."""
    woken_at: float = 0.0
    """On the monotonic clock."""
    _woken: datetime | None = None

    def stolen(self) -> list[OutboxMessage]:
        """As these rows are now."""
        rows = patiently(self.using, lambda: list(_rows(self.using, self.claimed)))
        return [row for row in rows if row.owner_token != self.claimed[row.pk].owner_token]

    def holds_locks(self) -> bool:
        """Whether it was stopped in a transaction that has locked some of these rows, or all there is to
        lock: what it has locked cannot be stolen."""
        connection = connections[self.using]
        if not connection.features.has_select_for_update:
            return _is_file_locked(str(connection.settings_dict["NAME"]))
        rows = _rows(self.using, self.claimed).select_for_update(nowait=True)
        try:
            with transaction.atomic(using=self.using):
                list(rows)
        except OperationalError:
            return True
        return False

    def runs(self, rows: Iterable[OutboxMessage]) -> set[Run]:
        """The zombie's own runs of them."""
        mine = [self.claimed[row.pk] for row in rows]
        return {Run(json.loads(row.payload)["number"], row.attempts) for row in mine}

    def wake(self) -> None:
        self._woken = patiently(self.using, lambda: clock.read(self.using))
        self.woken_at = time.monotonic()
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def kept_awake(self) -> Iterator[None]:
        """Its failpoint stops it again and again; what it starts has the same."""
        done = threading.Event()

        def nurse() -> None:
            while not done.wait(0.02):
                for pid in {life.pid for life in self.member.living()}:
                    if state_of(pid) == "T":
                        os.kill(pid, signal.SIGCONT)

        thread = threading.Thread(target=nurse, name="nurse")
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def wait_for_work(self) -> None:
        """Until it has claimed something since, under its old id or, replaced, under a new one."""
        since = OutboxMessage._base_manager.using(self.using).filter(last_attempt_at__gt=self._woken)

        def has_claimed() -> bool:
            mine = since.filter(claimed_by__in=[life.id for life in self.member.lives])
            return patiently(self.using, mine.exists)

        eventually(has_claimed, seconds=PATIENCE)


def stop(using: str, member: Member, *, pid: int | None = None) -> Zombie:
    """Its own process, or that of a child."""
    os.kill(pid or member.pid, signal.SIGSTOP)
    return stopped(using, member, pid=pid)


def stopped(using: str, member: Member, *, pid: int | None = None) -> Zombie:
    """As soon as it is, by whatever hand."""
    victim = pid or member.pid
    eventually(lambda: state_of(victim) == "T", seconds=PATIENCE)
    mine = [life.id for life in member.lives if life.pid == victim]
    return Zombie(using=using, member=member, pid=victim, claimed=held(using, mine))


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """Rows that must stay as they are from now on."""

    using: str
    _taken: dict[UUID, dict[str, Any]] = field(default_factory=dict)

    def take(self, keys: Iterable[UUID]) -> None:
        self._taken |= self._read(keys)

    def problems(self) -> list[str]:
        now = self._read(self._taken)
        return [
            f"a stale worker changed {name} of {key} from {value} to {now[key][name]}"
            for key, row in self._taken.items()
            for name, value in row.items()
            if now[key][name] != value
        ]

    def _read(self, keys: Iterable[UUID]) -> dict[UUID, dict[str, Any]]:
        rows = _rows(self.using, keys).values()
        return {row["id"]: row for row in patiently(self.using, lambda: list(rows))}


def _is_file_locked(path: str) -> bool:
    with closing(sqlite3.connect(path, timeout=1, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        connection.rollback()
        return False


def _rows(using: str, keys: Iterable[UUID]) -> QuerySet[OutboxMessage]:
    return OutboxMessage._base_manager.using(using).filter(pk__in=list(keys))
