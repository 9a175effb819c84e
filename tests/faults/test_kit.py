"""The fault kit itself: one that sees nothing would find every scenario clean."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import OperationalError, connections, transaction

from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.outbox import queue
from tests.faults.oracle import Oracle, Recovery, write
from tests.testapp.models import Effect, Order
from tests.workers import eventually, run_worker

COUNTS = ("lost", "duplicated", "ghosts", "wrongly_dead", "indeterminate")


def found(oracle: Oracle) -> dict[str, int]:
    """What the verdict counts, without the zeros."""
    verdict = oracle.verdict()
    return {name: count for name in COUNTS if (count := getattr(verdict, name))}


def messages(using: str, number: int | None = None) -> list[UUID]:
    rows = OutboxMessage._base_manager.using(using).order_by("id").values_list("id", "payload")
    wanted = f'{{"number":{number}}}'
    return [pk for pk, payload in rows if number is None or payload.replace(" ", "") == wanted]


def change(using: str, number: int, **values: object) -> None:
    OutboxMessage._base_manager.using(using).filter(pk__in=messages(using, number)).update(**values)


def repeat_effect(using: str, number: int) -> None:
    Effect.objects.using(using).create(name=str(number))


def test_an_honest_run_is_clean(using: str) -> None:
    """Both topics, with rolled-back transactions in between: nothing is counted."""
    oracle = Oracle(using)
    oracle.produce(30)
    oracle.produce(5, topic="fault.loose", together=1, rolled_back_every=1)
    assert not oracle.finished
    assert oracle.remaining() == 35
    run_worker(using)
    oracle.wait(0)
    assert found(oracle) == {}
    result = oracle.result("honest", faults=3, recovery=0.5, allowed_recovery=2)
    assert (result.messages, result.faults, result.clean) == (35, 3, True)
    assert oracle.done() == 35


def lose_the_effect(using: str) -> None:
    Effect.objects.using(using).filter(name="3").delete()


def lose_the_message(using: str) -> None:
    OutboxMessage._base_manager.using(using).filter(pk__in=messages(using, 3)).delete()


def lose_the_order(using: str) -> None:
    Order.objects.using(using).filter(number=3).delete()


def leave_it_unfinished(using: str) -> None:
    lose_the_effect(using)
    change(using, 3, status=Status.READY)


def cancel_it(using: str) -> None:
    lose_the_effect(using)
    change(using, 3, status=Status.CANCELLED)


def kill_it(using: str) -> None:
    lose_the_effect(using)
    change(using, 3, status=Status.DEAD)


def keep_the_message_of_a_rollback(using: str) -> None:
    """Number 11: after ten that committed."""
    write(using, [11])
    Order.objects.using(using).filter(number=11).delete()


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (lose_the_effect, {"lost": 1}),
        (lose_the_message, {"lost": 1}),
        (lose_the_order, {"lost": 1}),
        (leave_it_unfinished, {"lost": 1}),
        (cancel_it, {"lost": 1}),
        (kill_it, {"wrongly_dead": 1}),
        (lambda using: [repeat_effect(using, 3), repeat_effect(using, 3)], {"duplicated": 2}),
        (lambda using: repeat_effect(using, 11), {"ghosts": 1}),
        (lambda using: Order.objects.using(using).create(number=11), {"ghosts": 1}),
        (keep_the_message_of_a_rollback, {"ghosts": 1}),
    ],
)
def test_a_planted_defect_is_found(
    using: str, plant: Callable[[str], object], expected: dict[str, int]
) -> None:
    """Each in its own column, and in no other; its number is named."""
    oracle = Oracle(using)
    oracle.produce(10)
    run_worker(using)
    assert found(oracle) == {}
    plant(using)
    assert found(oracle) == expected
    assert "number" in oracle.verdict().details[0]
    with pytest.raises(AssertionError, match="planted"):
        oracle.result("planted").check()


def test_a_dead_message_may_be_expected(using: str) -> None:
    """Then it is neither lost nor wrongly dead; another one still is."""
    oracle = Oracle(using)
    oracle.produce(10)
    run_worker(using)
    kill_it(using)
    oracle.expect_dead(messages(using, 3))
    assert found(oracle) == {}
    Effect.objects.using(using).filter(name="4").delete()
    change(using, 4, status=Status.DEAD)
    assert found(oracle) == {"wrongly_dead": 1}


def test_repeated_effects_of_loose_handlers_are_allowed(using: str) -> None:
    """At least once is all that is promised there."""
    oracle = Oracle(using)
    oracle.produce(10, topic="fault.loose")
    run_worker(using)
    repeat_effect(using, 3)
    assert found(oracle) == {}


@pytest.mark.parametrize("arrived", [True, False])
def test_a_commit_without_an_answer_is_decided_by_the_order(
    using: str, arrived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Indeterminate: with the order in the database the effect is owed, without it forbidden."""
    oracle = Oracle(using)
    connection = connections[using]
    commit = connection._commit

    def fail() -> None:
        if arrived:
            commit()
        raise OperationalError("the answer never came")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "_commit", fail)
        oracle.produce(1, rolled_back_every=0)
    assert found(oracle) == {"indeterminate": 1} | ({"lost": 1} if arrived else {})
    repeat_effect(using, 1)
    assert found(oracle) == {"indeterminate": 1} | ({} if arrived else {"ghosts": 1})


def test_a_transaction_that_failed_before_its_commit_is_tried_again(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a new number: an effect of the first would be a ghost."""
    oracle = Oracle(using)
    calls: list[int] = []

    def fail_once(alias: str, numbers: list[int], topic: str) -> None:
        calls.extend(numbers)
        write(alias, numbers, topic)
        if len(calls) == 1:
            raise OperationalError("the connection is lost")

    monkeypatch.setattr("tests.faults.oracle.write", fail_once)
    assert oracle.produce(1) == [2]
    run_worker(using)
    assert found(oracle) == {}
    repeat_effect(using, 1)
    assert found(oracle) == {"ghosts": 1}


def test_numbers_for_another_producer_are_decided_by_the_order(using: str) -> None:
    """It may have died before its commit, or after."""
    oracle = Oracle(using)
    committed, _ = oracle.presume(2)
    with transaction.atomic(using=using):
        write(using, [committed])
    assert found(oracle) == {"indeterminate": 2, "lost": 1}
    run_worker(using)
    assert found(oracle) == {"indeterminate": 2}


def test_waiting_ends_with_an_error(using: str) -> None:
    """It says how many are left."""
    oracle = Oracle(using)
    oracle.produce(2)
    with pytest.raises(AssertionError, match="2 messages are still"):
        oracle.wait(0)


def test_recovery_waits_for_every_row_of_the_victim(using: str) -> None:
    """A row counts until its claim is over: settled, or ready again. Rows claimed later do not."""
    Oracle(using).produce(3, rolled_back_every=0)
    bound = queue.using(using)
    first, second = bound.claim(limit=2, lease=timedelta(minutes=1))
    recovery = Recovery(using)
    assert recovery.settle() is None
    assert recovery.fault() == 2
    bound.claim(limit=1, lease=timedelta(minutes=1))
    assert recovery.look() == 2
    assert recovery.longest is None
    bound.ack([first])
    assert recovery.look() == 1
    early = recovery.longest
    with pytest.raises(AssertionError, match="1 rows of the victims"):
        recovery.settle(0)
    bound.release([second])
    late = recovery.settle(0)
    assert early is not None
    assert late is not None
    assert late > early


def test_a_row_that_was_claimed_again_has_recovered(using: str) -> None:
    """Its status is the same as before; its owner token is not."""
    Oracle(using).produce(1, rolled_back_every=0)
    bound = queue.using(using)
    claimed = bound.claim(limit=1, lease=timedelta(minutes=1))
    recovery = Recovery(using)
    recovery.fault()
    bound.release(claimed)
    assert len(bound.claim(limit=1, lease=timedelta(minutes=1))) == 1
    assert recovery.look() == 0
    assert recovery.longest is not None


def test_a_watched_recovery_is_measured_when_it_happens(using: str) -> None:
    """Not when the scenario has time to look."""
    Oracle(using).produce(1, rolled_back_every=0)
    bound = queue.using(using)
    claimed = bound.claim(limit=1, lease=timedelta(minutes=1))
    recovery = Recovery(using)
    with recovery.watching():
        recovery.fault()
        bound.release(claimed)
        eventually(lambda: recovery.longest is not None)
    measured = recovery.longest
    assert recovery.settle(0) == measured


def test_recovery_follows_the_workers_that_are_named(using: str) -> None:
    """A fault of one worker has no victims among the rows of another."""
    Oracle(using).produce(2, rolled_back_every=0)
    one, other = UUID(int=1), UUID(int=2)
    for worker in (one, other):
        queue.using(using, worker_id=worker).claim(limit=1, lease=timedelta(minutes=1))
    assert Recovery(using).fault([one]) == 1
    assert Recovery(using).fault() == 2
