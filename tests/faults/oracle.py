"""Knows what was produced on a database, and judges what happened to it.

An order and its message are written in one transaction; the handler makes an effect that bears the
order's number. Then orders, messages and effects must tell the same story, whatever happened.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import Error, connections, transaction
from django.db.models import QuerySet

from reliable_messaging import OutgoingMessage, enqueue_many
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.registry import registry
from tests.testapp.models import Effect, Order

from .patience import patiently
from .recovery import Recovery, worker_ids
from .result import Result

__all__ = ["Oracle", "Recovery", "Verdict", "worker_ids"]

TOPIC = "fault.effect"
SHOWN = 5


class _RolledBack(Exception):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Each defect in one column only: a wrongly dead message is not also counted as lost."""

    lost: int
    duplicated: int
    ghosts: int
    wrongly_dead: int
    indeterminate: int
    details: tuple[str, ...] = ()
    """Which ones, for whoever has to find out why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What is in the database."""

    orders: set[int]
    messages: dict[int, tuple[UUID, int]]
    effects: Counter[int]


class Oracle:
    """Producing may go on in several threads, and while the database goes away and comes back."""

    def __init__(self, using: str) -> None:
        self.using = using
        self._numbers = itertools.count(1)
        self._topics: dict[int, str] = {}
        self._committed: set[int] = set()
        self._unknown: set[int] = set()
        self._rolled_back: set[int] = set()
        self._may_be_dead: set[UUID] = set()

    def produce(
        self,
        count: int,
        *,
        topic: str = TOPIC,
        together: int = 10,
        rolled_back_every: int = 10,
        seconds: float = 120,
    ) -> list[int]:
        """Write ``count`` orders with their messages, ``together`` in one transaction; after every
        ``rolled_back_every`` of them one more is written and rolled back (0: none).

        Returns the numbers that committed, or may have: a COMMIT that raised is indeterminate. A
        transaction that failed before its COMMIT is tried again under new numbers.
        """
        made: list[int] = []
        deadline = time.monotonic() + seconds
        while len(made) < count:
            assert time.monotonic() < deadline, f"only {len(made)} of {count} orders could be written"
            before = len(made)
            made += self._write(self._take(min(together, count - before), topic), topic)
            if rolled_back_every:
                for _ in range(len(made) // rolled_back_every - before // rolled_back_every):
                    self._write(self._take(1, topic), topic, roll_back=True)
        return made

    def presume(self, count: int, *, topic: str = TOPIC) -> list[int]:
        """Numbers for a producer elsewhere, which may die at any moment: the orders decide."""
        numbers = self._take(count, topic)
        self._unknown.update(numbers)
        return numbers

    def expect_dead(self, ids: Iterable[UUID]) -> None:
        """Messages that may rightly be dead in the end."""
        self._may_be_dead.update(ids)

    @property
    def produced(self) -> int:
        """Orders that committed or may have."""
        return len(self._committed) + len(self._unknown)

    def remaining(self) -> int:
        """Messages that are ready or claimed."""
        unfinished = self._messages().filter(status__in=[Status.READY, Status.CLAIMED])
        return patiently(self.using, unfinished.count)

    def done(self) -> int:
        return patiently(self.using, self._messages().filter(status=Status.DONE).count)

    @property
    def finished(self) -> bool:
        return self.remaining() == 0

    def wait(self, seconds: float = 120) -> None:
        """Until nothing is unfinished."""
        deadline = time.monotonic() + seconds
        while left := self.remaining():
            assert time.monotonic() < deadline, f"{left} messages are still ready or claimed"
            time.sleep(0.05)

    def verdict(self) -> Verdict:
        """By what is in the database now; a message that is not finished counts as lost."""
        found = self._find()
        dead = {n for n, (_, status) in found.messages.items() if status == Status.DEAD}
        rightly = {n for n in dead if found.messages[n][0] in self._may_be_dead}
        expected = self._committed | (self._unknown & found.orders)
        whole = found.orders & found.messages.keys() & (found.effects.keys() | dead)
        present = found.orders | found.messages.keys() | found.effects.keys()
        twice = {n for n, count in found.effects.items() if count > 1 and self._is_atomic(n)}
        lost, ghosts = expected - whole, present - expected
        return Verdict(
            lost=len(lost),
            duplicated=sum(found.effects[n] - 1 for n in twice),
            ghosts=len(ghosts),
            wrongly_dead=len(dead - rightly),
            indeterminate=len(self._unknown),
            details=tuple(
                _story(word, number, found)
                for word, numbers in (
                    ("lost", lost),
                    ("duplicated", twice),
                    ("ghost", ghosts),
                    ("wrongly dead", dead - rightly),
                )
                for number in sorted(numbers)[:SHOWN]
            ),
        )

    def result(
        self,
        scenario: str,
        *,
        faults: int = 0,
        recovery: float | None = None,
        allowed_recovery: float | None = None,
        problems: Iterable[str] = (),
    ) -> Result:
        verdict = self.verdict()
        return Result(
            scenario=scenario,
            database=patiently(self.using, lambda: connections[self.using].display_name),
            messages=self.produced,
            faults=faults,
            lost=verdict.lost,
            duplicated=verdict.duplicated,
            ghosts=verdict.ghosts,
            wrongly_dead=verdict.wrongly_dead,
            indeterminate=verdict.indeterminate,
            recovery=recovery,
            allowed_recovery=allowed_recovery,
            problems=(*problems, *verdict.details),
        )

    def _take(self, count: int, topic: str) -> list[int]:
        numbers = list(itertools.islice(self._numbers, count))
        self._topics.update(dict.fromkeys(numbers, topic))
        return numbers

    def _write(self, numbers: list[int], topic: str, *, roll_back: bool = False) -> list[int]:
        """One transaction. Returns the numbers that may be in the database now."""
        fate = self._rolled_back
        try:
            with transaction.atomic(using=self.using):
                write(self.using, numbers, topic)
                if roll_back:
                    raise _RolledBack
                fate = self._unknown  # from here on only the COMMIT is left
            fate = self._committed
        except _RolledBack:
            pass
        except Error:
            connections[self.using].close()
            time.sleep(0.05)
        fate.update(numbers)
        return [] if fate is self._rolled_back else numbers

    def _find(self) -> _Found:
        orders = Order.objects.using(self.using).values_list("number", flat=True)
        effects = Effect.objects.using(self.using).values_list("name", flat=True)
        messages = self._messages().filter(topic__in=set(self._topics.values()))
        rows = messages.values_list("payload", "id", "status")
        return _Found(
            orders=set(self._all(orders)),
            messages={_number(payload): (pk, status) for payload, pk, status in self._all(rows)},
            # Other handlers of the tests name their effects in words.
            effects=Counter(int(name) for name in self._all(effects) if name.isdecimal()),
        )

    def _all(self, rows: Iterable[Any]) -> list[Any]:
        return patiently(self.using, lambda: list(rows))

    def _messages(self) -> QuerySet[OutboxMessage]:
        return OutboxMessage._base_manager.using(self.using)

    def _is_atomic(self, number: int) -> bool:
        handler = registry.find(self._topics.get(number, TOPIC))
        return handler is None or handler.atomic


def write(using: str, numbers: list[int], topic: str = TOPIC, *, queue: str | None = None) -> None:
    """Orders and their messages, in the transaction of whoever calls."""
    Order.objects.using(using).bulk_create([Order(number=number) for number in numbers])
    enqueue_many(
        [OutgoingMessage(topic=topic, payload={"number": n}, queue=queue) for n in numbers], using=using
    )


def _number(payload: str) -> int:
    number: int = json.loads(payload)["number"]
    return number


def _story(word: str, number: int, found: _Found) -> str:
    message = found.messages.get(number)
    stored = f"message {message[0]} {Status(message[1]).label}" if message else "no message"
    order = "an order" if number in found.orders else "no order"
    return f"{word}: number {number} has {order}, {stored}, {found.effects[number]} effects"
