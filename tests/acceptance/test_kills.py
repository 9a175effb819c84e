"""Workers killed with SIGKILL while they are busy: nothing lost, nothing twice, nothing sent by ghosts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import transaction

from reliable_messaging import OutgoingMessage, enqueue, enqueue_many
from reliable_messaging.models import Failure, OutboxMessage, Status
from tests.testapp.models import Effect, Order
from tests.workers import WorkerProcess, eventually

MESSAGES = 1000
KILLS = 20
Start = Callable[..., WorkerProcess]


def produce(using: str) -> None:
    """Orders and their messages, every tenth rolled back."""
    for number in range(0, MESSAGES, 10):
        with transaction.atomic(using=using):
            orders = [Order(number=n) for n in range(number, number + 10)]
            Order.objects.using(using).bulk_create(orders)
            enqueue_many(
                [OutgoingMessage(topic="test.effect", payload=o.number) for o in orders], using=using
            )
        with pytest.raises(ZeroDivisionError), transaction.atomic(using=using):
            Order.objects.using(using).create(number=-1)
            enqueue("test.effect", f"ghost {number}", using=using)
            raise ZeroDivisionError


def test_twenty_kills_lose_and_repeat_nothing(using: str, start: Start) -> None:
    """1,000 messages, 20 SIGKILLs of busy workers: every effect exactly once, no ghost, no dead."""
    produce(using)
    options = ("--lease", "1", "--poll-max", "0.2", "--chunk-size", "5", "--verbosity", "0")
    many = {"TEST_MAX_CRASHES": "1000"}  # innocent neighbours of 20 murders are not to be blamed here
    dice = random.Random(20261117)
    messages = OutboxMessage._base_manager.using(using)
    workers = [start(using, *options, environment=many) for _ in range(2)]

    def done() -> int:
        return messages.filter(status=Status.DONE).count()

    for kill in range(KILLS):
        # Each victim must have been at work: wait until its share of the work is through.
        busy = min(MESSAGES - 100, (kill + 1) * (MESSAGES // (KILLS + 4)))
        eventually(lambda busy=busy: done() >= busy, seconds=60)  # type: ignore[misc]
        victim = workers.pop(dice.randrange(2))
        assert victim.alive
        victim.kill()
        workers.append(start(using, *options, environment=many))
    eventually(lambda: done() == MESSAGES, seconds=120, every=0.1)

    made = Counter(Effect.objects.using(using).values_list("name", flat=True))
    assert set(made) == {f"effect {number}" for number in range(MESSAGES)}
    assert set(made.values()) == {1}
    assert Order.objects.using(using).count() == MESSAGES
    assert set(messages.values_list("status", flat=True)) == {Status.DONE}
    # The kills did hit claimed work: leases ended, and were reaped.
    assert Failure._base_manager.using(using).filter(kind=Failure.Kind.CRASH).exists()


def test_a_message_whose_worker_was_killed_is_finished_by_another(
    using: str, start: Start, tmp_path: Path
) -> None:
    """Killed in mid-handler: within lease and poll interval another worker has it, one crash counted."""
    began = tmp_path / "began"
    row = enqueue("test.slow", {"touch": str(began), "seconds": 600}, using=using)
    first = start(using, "--lease", "1", "--poll-max", "0.2")
    eventually(began.exists)
    first.kill()
    messages = OutboxMessage._base_manager.using(using)
    messages.filter(pk=row.pk).update(payload=row.payload.replace("600", "0"))
    start(using, "--lease", "1", "--poll-max", "0.2")
    eventually(lambda: messages.get().status == Status.DONE)
    stored = messages.get()
    assert (stored.attempts, stored.crashes, stored.failures) == (2, 1, 0)
    assert Effect.objects.using(using).count() == 1


def test_a_message_that_kills_its_worker_dies_alone(using: str, start: Start) -> None:
    """One of 60 ends its process each time. After MAX_CRASHES it is dead; the others, whom it dragged
    along at first, are all done, and no budget but crashes was touched."""
    rows = enqueue_many(
        [OutgoingMessage(topic="test.poison" if n == 30 else "test.loose", payload=n) for n in range(60)],
        using=using,
    )
    poison = rows[30]
    messages = OutboxMessage._base_manager.using(using)
    limits = {"TEST_MAX_CRASHES": "3"}
    for _ in range(10):
        worker = start(using, "--lease", "1", "--poll-max", "0.2", "--verbosity", "0", environment=limits)
        eventually(
            lambda worker=worker: not worker.alive or not messages.filter(status__lt=Status.DONE).exists()  # type: ignore[misc]
        )
        if worker.alive:
            break
    statuses = Counter(messages.values_list("status", flat=True))
    assert statuses == {Status.DONE: 59, Status.DEAD: 1}
    dead = messages.get(status=Status.DEAD)
    assert (dead.pk, dead.crashes, dead.failures) == (poison.pk, 3, 0)
    assert not messages.exclude(failures=0, transient_failures=0).exists()
    assert max(messages.filter(status=Status.DONE).values_list("crashes", flat=True)) == 1
