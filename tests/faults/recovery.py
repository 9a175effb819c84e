"""How long the work of a victim stays out of reach."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from reliable_messaging.models import OutboxMessage, Status, Worker
from tests.sessions import in_session

from .patience import patiently

EVERY = 0.02


def worker_ids(using: str, pids: Iterable[int]) -> list[UUID]:
    """The workers that run, or ran until they were killed, under these process ids."""
    workers = Worker._base_manager.using(using).filter(pid__in=list(pids))
    return patiently(using, lambda: list(workers.values_list("id", flat=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Victims:
    since: float
    tokens: dict[UUID, UUID]


class Recovery:
    """From each fault until the rows that were claimed then are claimed again or settled.

    ``longest`` is as exact as the looks are frequent: ``settle()`` looks all the time, and so does
    ``watching()``, for a scenario that is busy with the next fault meanwhile.
    """

    def __init__(self, using: str) -> None:
        self.using = using
        self.faults = 0
        self.victims = 0
        self.longest: float | None = None
        self._open: list[_Victims] = []
        self._lock = threading.Lock()

    def fault(self, workers: Collection[UUID] | None = None) -> int:
        """It happens now, to these workers (None: to all). Returns how many claimed rows it hit."""
        now = time.monotonic()
        claimed = self._claimed()
        if workers is not None:
            claimed = claimed.filter(claimed_by__in=workers)
        tokens = dict(patiently(self.using, lambda: list(claimed.values_list("id", "owner_token"))))
        with self._lock:
            self.faults += 1
            self.victims += len(tokens)
            self._open.append(_Victims(since=now, tokens=tokens))
        return len(tokens)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look all the time, in a session of its own."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(EVERY):
                self.look()

        watcher = in_session(watch)
        try:
            yield
        finally:
            over.set()
            watcher.result(timeout=90)

    def look(self) -> int:
        """How many rows are still held by a claim from before a fault."""
        with self._lock:
            return self._look()

    def settle(self, seconds: float = 120) -> float | None:
        """Wait until none is; returns the longest time so far, None when nothing was hit."""
        deadline = time.monotonic() + seconds
        while left := self.look():
            assert time.monotonic() < deadline, f"{left} rows of the victims are still claimed"
            time.sleep(EVERY)
        return self.longest

    def _look(self) -> int:
        waiting = {item for victims in self._open for item in victims.tokens}
        rows = self._claimed().filter(pk__in=waiting).values_list("id", "owner_token")
        held = set(patiently(self.using, lambda: list(rows))) if waiting else set()
        now = time.monotonic()
        self._open = [left for victims in self._open if (left := self._left(victims, held, now)).tokens]
        return sum(len(victims.tokens) for victims in self._open)

    def _claimed(self) -> QuerySet[OutboxMessage]:
        return OutboxMessage._base_manager.using(self.using).filter(status=Status.CLAIMED)

    def _left(self, victims: _Victims, held: set[tuple[UUID, UUID]], now: float) -> _Victims:
        left = {item: token for item, token in victims.tokens.items() if (item, token) in held}
        if len(left) < len(victims.tokens):
            self.longest = max(self.longest or 0.0, now - victims.since)
        return _Victims(since=victims.since, tokens=left)
