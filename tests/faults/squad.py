"""Worker processes that a scenario kills, stops and replaces, each with a log of its own."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from django.db.models import QuerySet

from reliable_messaging.models import OutboxMessage, Status
from tests.workers import WorkerProcess

from .patience import patiently
from .result import Result

STARTED = re.compile(r"worker started id=(\S+) pid=(\d+)")
SHOWN = 3000
"""Characters of each log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """From one start of a worker to its end; a process that replaces itself begins another one."""

    id: UUID
    pid: int


class Member(WorkerProcess):
    """By its log, which its children write too, it is known under which ids it has worked; its row in
    the database comes a moment later, and goes."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def lives(self) -> list[Life]:
        """Its own and its children's, in order."""
        found = STARTED.findall(self.log.read_text())
        return [Life(id=UUID(text), pid=int(pid)) for text, pid in found]

    @property
    def ids(self) -> list[UUID]:
        """Its own."""
        return [life.id for life in self.lives if life.pid == self.pid]

    def living(self) -> list[Life]:
        """Those of now: its own first, if it is up, and its children's."""
        if not self.alive:
            return []
        present = {life.pid: life for life in self.lives}
        return [life for pid, life in present.items() if pid == self.pid or parent_of(pid) == self.pid]


class Squad:
    def __init__(
        self, using: str, *options: str, directory: Path, environment: Mapping[str, str] | None
    ) -> None:
        self.using = using
        self.members: list[Member] = []
        self.directory = directory
        self._options = options
        self._environment = dict(environment or {})

    def start(self, *options: str, environment: Mapping[str, str] | None = None) -> Member:
        member = Member(
            self.using,
            *self._options,
            *options,
            log=self.directory / f"worker_{len(self.members)}.log",
            environment={**self._environment, **(environment or {})},
        )
        self.members.append(member)
        return member

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members if member.alive]

    def judged(self, result: Result) -> Result:
        """The same; an unclean one is told with what the workers have said."""
        if not result.clean:
            self.show_logs()
        return result

    def show_logs(self) -> None:
        for member in self.members:
            print(
                f"--- {member.log.name}: {member.process.args}\n{member.log.read_text()[-SHOWN:]}", flush=True
            )

    def close(self) -> None:
        """End them all. Their children end by themselves, when they notice; that is not waited for long."""
        children = {life.pid for member in self.members for life in member.living()}
        for member in self.members:
            member.close()
        for pid in children:
            end_orphan(pid)


@contextmanager
def squad_of(using: str, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[Squad]:
    """No process of it outlives the block; their last words are shown when it fails."""
    with TemporaryDirectory(prefix="rm_squad_") as directory:
        squad = Squad(using, *options, directory=Path(directory), environment=environment)
        try:
            yield squad
        except BaseException:
            squad.show_logs()
            raise
        finally:
            squad.close()


def held(using: str, ids: Iterable[UUID]) -> dict[UUID, OutboxMessage]:
    """The rows that these workers have claimed, by their key."""
    rows = _claimed_by(using, ids)
    return {row.pk: row for row in patiently(using, lambda: list(rows))}


def holders(using: str, ids: Iterable[UUID]) -> set[UUID]:
    """Which of these workers have claimed something at this moment."""
    rows = _claimed_by(using, ids).values_list("claimed_by", flat=True)
    return patiently(using, lambda: set(rows))


def _claimed_by(using: str, ids: Iterable[UUID]) -> QuerySet[OutboxMessage]:
    return OutboxMessage._base_manager.using(using).filter(status=Status.CLAIMED, claimed_by__in=list(ids))


def state_of(pid: int) -> str:
    """One letter, as the system has it: R, S, T (stopped) …; empty when it has ended."""
    return _stat(pid)[0]


def parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    with suppress(OSError):
        found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if found[0] != "Z":
            return found
    return ["", "0"]


def end_orphan(pid: int, *, seconds: float = 5) -> None:
    """A child of a worker that is gone: it should have noticed by then."""
    deadline = time.monotonic() + seconds
    while (present := _is_worker(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    if present:
        os.kill(pid, signal.SIGKILL)


def _is_worker(pid: int) -> bool:
    """Not just any process: the number may have been given to another one since."""
    with suppress(OSError):
        return bool(state_of(pid)) and b"run_outbox_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
