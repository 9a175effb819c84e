"""Workers whose clocks are wrong, and jump: every time is the database's, so nothing is early, late or
taken from the living."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connections, transaction
from django.db.models import F, QuerySet

from reliable_messaging import OutgoingMessage, clock, enqueue_many
from reliable_messaging.models import Failure, OutboxMessage, Status, Worker
from tests.testapp.models import Effect, Order
from tests.testapp.timing import DELAY
from tests.testapp.wrong_clock import JUMPING, VARIABLE
from tests.workers import eventually

from .chaos import Entry
from .crew import Crew, crew_for
from .oracle import Oracle
from .result import Result

CLOCKS = ("3600", "-3600", JUMPING)
LEASE = 1
POLL_MAX = 0.5
OPTIONS = (
    *("--lease", str(LEASE), "--poll-max", str(POLL_MAX), "--grace", "2"),
    *("--concurrency", "4", "--verbosity", "0"),
)
LATE = POLL_MAX + 1
"""Seconds after its due time by which a message must have been claimed."""
SOON = timedelta(seconds=1.5)
FAR = timedelta(seconds=3000)
"""Has come, for whoever is an hour ahead."""
NEVER = 2 * LATE
ROUNDING = timedelta(milliseconds=1)
NOTE = re.compile(r"at (\S+) by a clock ahead by (\S+) h")


def clocks(using: str, *, seed: int, messages: int) -> Result:
    """Three workers share the work: an hour ahead, an hour behind, and jumping between the two."""
    oracle, dice = Oracle(using), random.Random(seed)
    with crew_for(using) as crew:
        _start_all(crew)
        _produce(oracle, messages, dice)
        distant = _enqueue_distant(using)
        silence = _wait(using, distant)
        problems = [
            *_silent(silence),
            *_early(using),
            *_stolen(using),
            *_retried_wrongly(using),
            *_expired_wrongly(using, distant),
            *_clocks_not_wrong(using),
        ]
        return crew.judged(
            oracle.result(
                "wrong clocks",
                faults=len(CLOCKS),
                recovery=_latest(using),
                allowed_recovery=LATE,
                problems=problems,
            )
        )


def purges(using: str, *, seed: int, messages: int, retention: float) -> Result:
    """The same workers delete what is done: not before its retention is over, and soon after."""
    environment = {"TEST_OUTBOX_RETENTION": str(retention), "TEST_CLEANUP_INTERVAL": "0.2"}
    with crew_for(using) as crew:
        _start_all(crew, environment)
        # Made just now: the ids that are a clue to their age are as young as they can be.
        rows = enqueue_many(
            [OutgoingMessage(topic="test.loose", payload=n) for n in range(messages)], using=using
        )
        eventually(lambda: _count(using, Status.DONE) == len(rows))
        finished = dict(_messages(using).values_list("id", "finished_at"))
        problems = list(_purged_wrongly(using, finished, timedelta(seconds=retention)))
        result = Result(
            scenario="purge by wrong clocks",
            database=connections[using].display_name,
            messages=messages,
            faults=len(CLOCKS),
            problems=tuple(problems),
        )
        return crew.judged(result)


def _start_all(crew: Crew, environment: dict[str, str] | None = None) -> None:
    """Each serves every queue but those that are for one of the others alone."""
    for wrong in CLOCKS:
        others = ["unserved", *(other for other in CLOCKS if other != wrong)]
        crew.start(
            *(*OPTIONS, "--exclude-queues", ",".join(others)),
            environment={VARIABLE: wrong, **(environment or {})},
        )
    eventually(lambda: Worker._base_manager.using(crew.using).count() == len(CLOCKS), seconds=60)


def _produce(oracle: Oracle, count: int, dice: random.Random) -> None:
    """Some due at once, some later; slow ones; ones that fail once; ones that enqueue another."""
    now = clock.read(oracle.using)
    timed = [("clock.effect", {"delay": dice.uniform(0.2, 4)}) for _ in range(count)]
    dated = [("clock.effect", {"due_at": now + timedelta(seconds=dice.uniform(1, 4))}) for _ in range(count)]
    slow = [("clock.slow", {"queue": wrong}) for wrong in CLOCKS] * 2
    retried = [("clock.retry", {}) for _ in range(count // 2)]
    with transaction.atomic(using=oracle.using):
        outgoing = [_order(oracle, topic, options) for topic, options in (*timed, *dated, *slow, *retried)]
        outgoing += [_order_of_two(oracle) for _ in range(count // 2)]
        enqueue_many(outgoing, using=oracle.using)


def _order(oracle: Oracle, topic: str, options: dict[str, Any]) -> OutgoingMessage:
    (number,) = oracle.presume(1, topic=topic)
    Order.objects.using(oracle.using).create(number=number)
    return OutgoingMessage(topic=topic, payload={"number": number}, **options)


def _order_of_two(oracle: Oracle) -> OutgoingMessage:
    """The second message of which is enqueued by the handler of the first."""
    parent = _order(oracle, "clock.parent", {})
    (child,) = oracle.presume(1, topic="clock.effect")
    Order.objects.using(oracle.using).create(number=child)
    return OutgoingMessage(topic=parent.topic, payload={**parent.payload, "child": child})


def _enqueue_distant(using: str) -> list[UUID]:
    """To be left alone until the end, and beside them some that are to expire in time."""
    distant = [
        OutgoingMessage(topic="clock.distant", delay=FAR),
        OutgoingMessage(topic="clock.distant", queue="unserved", expires_in=FAR),
    ]
    soon = OutgoingMessage(topic="clock.expiring", queue="unserved", expires_in=SOON)
    enqueue_many([soon] * 3, using=using)
    return [row.pk for row in enqueue_many(distant, using=using)]


def _wait(using: str, distant: list[UUID]) -> float:
    """Until all but these is finished; returns how long a worker has not renewed its leases, at most."""
    silences = []

    def is_over() -> bool:
        beats = Worker._base_manager.using(using).values_list("heartbeat_at", flat=True)
        now = clock.read(using)  # before the rows, or a beat could be later than it
        silences.extend((now - beat).total_seconds() for beat in beats)
        return not _unfinished(using).exclude(pk__in=distant).exists()

    eventually(is_over, seconds=60, every=0.1)
    return max(silences)


def _silent(longest: float) -> Iterator[str]:
    if longest > 2 * LEASE:
        yield f"a worker did not renew its leases for {longest:.1f} s"


def _messages(using: str) -> QuerySet[OutboxMessage]:
    return OutboxMessage._base_manager.using(using)


def _unfinished(using: str) -> QuerySet[OutboxMessage]:
    return _messages(using).filter(status__in=[Status.READY, Status.CLAIMED])


def _count(using: str, status: Status) -> int:
    return _messages(using).filter(status=status).count()


def _notes(using: str) -> Iterator[tuple[UUID | None, datetime, int]]:
    """Which message, when by the database's clock, and how many hours its worker was ahead."""
    for name, message_id in Effect.objects.using(using).values_list("name", "message_id"):
        if found := NOTE.fullmatch(name):
            yield message_id, datetime.fromisoformat(found[1]), int(found[2])


def _early(using: str) -> Iterator[str]:
    due = dict(_messages(using).values_list("id", "due_at"))
    for message_id, at, ahead in _notes(using):
        assert message_id is not None
        if at + ROUNDING < due[message_id]:
            yield f"{message_id} ran {due[message_id] - at} too early, on a worker {ahead} h ahead"
    for row in _messages(using).filter(topic="clock.effect", causation_id__isnull=False):
        parent = _messages(using).get(pk=row.causation_id)
        if row.due_at - row.created_at != DELAY:
            yield f"{row.pk} was to be due in {DELAY}, and is due in {row.due_at - row.created_at}"
        if not parent.last_attempt_at <= row.created_at <= parent.finished_at:
            yield f"{row.pk} was made at {row.created_at}, which is not while its parent was running"


def _latest(using: str) -> float:
    """The longest time between a due time and the claim, in seconds."""
    claimed = _messages(using).filter(last_attempt_at__isnull=False)
    return max((row.last_attempt_at - row.due_at).total_seconds() for row in claimed)


def _stolen(using: str) -> Iterator[str]:
    ran = _messages(using).filter(attempts__gt=0)
    if wrong := ran.exclude(attempts=1 + F("failures")).count():
        yield f"{wrong} messages were claimed more often than they had to be"
    if crashed := ran.filter(crashes__gt=0).count():
        yield f"{crashed} messages were charged with a crash"
    workers = set(ran.values_list("claimed_by", flat=True))
    if len(workers) != len(CLOCKS):
        yield f"{len(workers)} workers took part, not {len(CLOCKS)}"


def _retried_wrongly(using: str) -> Iterator[str]:
    rows = _messages(using).filter(topic="clock.retry")
    failed = dict(Failure._base_manager.using(using).values_list("item_id", "last_at"))
    for row in rows:
        if row.failures != 1 or abs(row.due_at - failed[row.pk] - DELAY) > DELAY / 2:
            yield f"{row.pk} failed at {failed.get(row.pk)} and was due again at {row.due_at}"


def _expired_wrongly(using: str, distant: list[UUID]) -> Iterator[str]:
    if _messages(using).filter(pk__in=distant, status=Status.READY, attempts=0).count() != len(distant):
        yield "a message that is due, or expires, only in an hour was touched"
    for row in _messages(using).filter(topic="clock.expiring"):
        late = (row.finished_at - row.expires_at).total_seconds() if row.finished_at else None
        if row.status != Status.EXPIRED or late is None or not -0.001 <= late <= LATE:
            yield f"{row.pk} is {row.get_status_display()}, marked {late} s after its time"


def _clocks_not_wrong(using: str) -> Iterator[str]:
    hours = {ahead for _, _, ahead in _notes(using)}
    if hours != {1, -1}:
        yield f"the clocks were ahead by {sorted(hours)} hours, not by 1 and -1"


def _purged_wrongly(using: str, finished: dict[UUID, Any], retention: timedelta) -> Iterator[str]:
    """Looks often: a row that is missing at a look was deleted before the clock was read after it."""
    left = set(finished)
    last_end = max(finished.values()) + retention
    while left:
        found = set(_messages(using).values_list("id", flat=True))
        now = clock.read(using)
        for gone in left - found:
            if now < finished[gone] + retention:
                yield f"{gone} was purged {finished[gone] + retention - now} too early"
        left = found
        if now > last_end + timedelta(seconds=NEVER):
            yield f"{len(left)} rows are still there, long after their retention"
            return
        time.sleep(0.05)


ENTRIES = [
    Entry("clock", clocks, {"messages": 60}),
    Entry("clock-purge", purges, {"messages": 60, "retention": 5.0}),
]
