"""Two real sessions, real locks: what one does while the other has not committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import pytest
from django.db import connections, transaction
from django.utils import timezone

from reliable_messaging import OutgoingMessage, enqueue, enqueue_many, outbox
from reliable_messaging.ids import lowest_uuid7, uuid7
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.workqueue import deadlock
from tests.factories import OutboxMessageFactory
from tests.sessions import in_session, together
from tests.testapp.models import Order

T = TypeVar("T")


class Transaction:
    """A transaction on a session of its own, held open until told to commit or roll back."""

    def __init__(self, using: str, work: Any) -> None:
        self._go = threading.Event()
        self._worked = threading.Event()
        self._commit = True
        self.result: Any = None

        def run() -> None:
            with transaction.atomic(using=using):
                self.result = work()
                self._worked.set()
                assert self._go.wait(timeout=30)
                if not self._commit:
                    transaction.set_rollback(True, using=using)

        self._future: Future[None] = in_session(run)
        while not self._worked.wait(timeout=0.05):
            if self._future.done():
                self._future.result()

    def commit(self) -> None:
        self._go.set()
        self._future.result(timeout=30)

    def roll_back(self) -> None:
        self._commit = False
        self.commit()

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, *exc: object) -> None:
        """A test that fails must not leave its locks to the next."""
        if not self._go.is_set():
            self.roll_back()


def waits(future: Future[Any]) -> bool:
    """Whether it is still blocked, after it had time enough to end."""
    time.sleep(0.3)
    return not future.done()


def without_waiting(function: Callable[[], T]) -> T:
    """What it returns; a call that waits for a lock is an error."""
    return in_session(function).result(timeout=5)


def payloads(using: str) -> list[str]:
    return sorted(OutboxMessage._base_manager.using(using).values_list("payload", flat=True))


def test_an_uncommitted_message_is_invisible(row_locking: str) -> None:
    """A worker does not see it, and does not wait for it."""
    queue = outbox.queue.using(row_locking)
    producer = Transaction(row_locking, lambda: enqueue("x", using=row_locking))
    assert queue.claim(limit=5) == []
    producer.commit()
    assert len(queue.claim(limit=5)) == 1


def test_a_claim_passes_over_what_another_session_is_claiming(row_locking: str) -> None:
    """Locked rows are skipped, not waited for; the others are taken in order."""
    rows = [OutboxMessageFactory.on(row_locking) for _ in range(4)]
    queue = outbox.queue.using(row_locking)
    with Transaction(row_locking, lambda: queue.claim(limit=2)):
        claimed = without_waiting(lambda: queue.claim(limit=4))
    assert [item.id for item in claimed] == [row.pk for row in rows[2:]]
    assert {item.id for item in queue.claim(limit=4)} == {row.pk for row in rows[:2]}


def test_a_sweep_passes_over_locked_rows(row_locking: str) -> None:
    """Reaping neither waits for, nor charges, a row that someone is settling at this moment."""
    OutboxMessageFactory.on(row_locking)
    queue = outbox.queue.using(row_locking)
    (item,) = queue.claim(lease=0)
    with Transaction(row_locking, lambda: queue.ack([item])) as settling:
        assert without_waiting(queue.reap) == 0
        settling.commit()
    assert queue.reap() == 0
    assert OutboxMessage._base_manager.using(row_locking).get().status == Status.DONE


def test_renewal_counts_an_own_locked_row_as_alive(row_locking: str) -> None:
    """The chunk that settles it holds the lock: it is neither waited for nor reported as lost."""
    for _ in range(2):
        OutboxMessageFactory.on(row_locking)
    queue = outbox.queue.using(row_locking)
    items = queue.claim(limit=2)
    with Transaction(row_locking, lambda: queue.ack(items[:1])) as settling:
        assert without_waiting(lambda: queue.renew(items)) == []
        settling.commit()
    assert queue.renew(items) == items[:1]


def test_a_settle_that_meets_a_reaper_is_told(row_locking: str) -> None:
    """The ack waits for the reaper's commit, then finds its token gone."""
    OutboxMessageFactory.on(row_locking)
    queue = outbox.queue.using(row_locking)
    (item,) = queue.claim(lease=0)
    reaping = Transaction(row_locking, queue.reap)
    acking = in_session(lambda: queue.ack([item]))
    assert waits(acking)
    reaping.commit()
    assert acking.result(timeout=10) == [item]
    row = OutboxMessage._base_manager.using(row_locking).get()
    assert (row.status, row.crashes) == (Status.READY, 1)


def test_an_ack_in_a_callers_transaction_that_meets_a_reaper_is_told(row_locking: str) -> None:
    """There is no rolling back and trying again: it must lock what it finds to be its own."""
    OutboxMessageFactory.on(row_locking)
    queue = outbox.queue.using(row_locking)
    (item,) = queue.claim(lease=0)

    def ack() -> list[Any]:
        with transaction.atomic(using=row_locking):
            return queue.ack([item])

    with Transaction(row_locking, queue.reap) as reaping:
        acking = in_session(ack)
        assert waits(acking)
        reaping.commit()
    assert acking.result(timeout=10) == [item]


def test_a_suspect_that_is_being_claimed_is_passed_over(row_locking: str) -> None:
    """Neither waited for, nor does its claim lock the others."""
    rows = [OutboxMessageFactory.on(row_locking, crashes=1) for _ in range(3)]
    queue = outbox.queue.using(row_locking)
    with Transaction(row_locking, queue.claim_suspect) as other:
        claimed = without_waiting(queue.claim_suspect)
        assert [item.id for item in (*other.result, *claimed)] == [row.pk for row in rows[:2]]


def test_a_cancel_that_meets_a_claim_finds_nothing(row_locking: str) -> None:
    """It waits for the claim's commit: what runs cannot be called back."""
    row = OutboxMessageFactory.on(row_locking)
    queue = outbox.queue.using(row_locking)
    with Transaction(row_locking, queue.claim) as claiming:
        cancelling = in_session(lambda: queue.cancel([row.pk]))
        assert waits(cancelling)
        claiming.commit()
    assert cancelling.result(timeout=10) == []
    assert OutboxMessage._base_manager.using(row_locking).get().status == Status.CLAIMED


def test_a_purge_leaves_what_is_being_revived(row_locking: str) -> None:
    """An operator requeues it at the same moment: to delete it then would lose a message."""
    moment = timezone.now() - timedelta(days=30)
    row = OutboxMessageFactory.on(
        row_locking, id=lowest_uuid7(moment), status=Status.CANCELLED, finished_at=moment
    )
    queue = outbox.queue.using(row_locking)
    with Transaction(row_locking, lambda: queue.requeue([row.pk])) as operator:
        purging = in_session(queue.purge)
        time.sleep(0.3)
        operator.commit()
    assert purging.result(timeout=10) == 0
    assert OutboxMessage._base_manager.using(row_locking).get().status == Status.READY


def test_a_worker_leaves_a_message_whose_update_is_not_committed(row_locking: str) -> None:
    """A second enqueue of the key locks the row, so it cannot run with the old payload meanwhile."""
    enqueue("sync", "old", dedup_key="k", using=row_locking)
    queue = outbox.queue.using(row_locking)
    with Transaction(row_locking, lambda: enqueue("sync", "new", dedup_key="k", using=row_locking)) as second:
        assert without_waiting(lambda: queue.claim(limit=5)) == []
        second.commit()
    (item,) = queue.claim(limit=5)
    assert item.payload == "new"


def test_an_update_that_meets_a_claim_becomes_a_message_of_its_own(row_locking: str) -> None:
    """The claim commits first: the new data is not merged into a message that already runs."""
    first = enqueue("sync", "old", dedup_key="k", using=row_locking)
    queue = outbox.queue.using(row_locking)
    claiming = Transaction(row_locking, lambda: queue.claim(limit=5))
    enqueueing = in_session(lambda: enqueue("sync", "new", dedup_key="k", using=row_locking))
    assert waits(enqueueing)
    claiming.commit()
    second = enqueueing.result(timeout=10)
    assert second.pk != first.pk
    assert [item.payload for item in claiming.result] == ["old"]
    assert [item.payload for item in queue.claim(limit=5)] == ["new"]


def test_a_claim_and_an_update_lock_in_the_same_order(row_locking: str) -> None:
    """A claim locks the row and then empties its slot. A producer that locked the slot first would
    meet it half way, and one of the two would die in a deadlock: perhaps the caller's transaction."""
    first = enqueue("sync", "old", dedup_key="k", using=row_locking)
    rows = OutboxMessage._base_manager.using(row_locking)
    with transaction.atomic(using=row_locking):
        rows.select_for_update().get(pk=first.pk)
        enqueueing = in_session(lambda: enqueue("sync", "new", dedup_key="k", using=row_locking))
        assert waits(enqueueing)
        rows.filter(pk=first.pk).update(dedup_slot=None)
    assert enqueueing.result(timeout=10).pk != first.pk


@pytest.mark.parametrize("commits", [True, False])
def test_two_producers_of_one_key(row_locking: str, commits: bool) -> None:
    """The second waits for the first. Committed: one message with the later payload. Rolled back:
    the second's own."""
    first = Transaction(row_locking, lambda: enqueue("sync", 1, dedup_key="k", using=row_locking))
    second = in_session(lambda: enqueue("sync", 2, dedup_key="k", using=row_locking))
    assert waits(second)
    first.commit() if commits else first.roll_back()
    row = second.result(timeout=10)
    assert (row.pk == first.result.pk) is commits
    assert payloads(row_locking) == ["2"]


def test_racing_duplicates_lose_no_update(using: str) -> None:
    """Eight sessions each change a row of their own and enqueue the same key, while a ninth claims and
    reads all the rows. Whatever was merged or made anew: the last reading shows the last changes."""
    queue = outbox.queue.using(using)
    orders = [Order.objects.using(using).create(number=0) for _ in range(8)]
    producing = threading.Semaphore(0)
    readings: list[list[int]] = []

    def numbers() -> list[int]:
        return list(Order.objects.using(using).order_by("pk").values_list("number", flat=True))

    def produce(order: Order) -> None:
        for number in range(1, 16):
            with transaction.atomic(using=using):
                Order.objects.using(using).filter(pk=order.pk).update(number=number)
                enqueue("sync", dedup_key="k", using=using)
                time.sleep(0.001)  # the change is not visible to others yet
        producing.release()

    def consume() -> None:
        ended = 0
        while True:
            ended += producing.acquire(blocking=False)
            items = queue.claim(limit=5)
            if items:
                readings.append(numbers())
                queue.ack(items)
            elif ended == len(orders):
                return

    together([*[partial(produce, order) for order in orders], consume])
    assert readings[-1] == numbers() == [15] * 8


def test_bulk_enqueues_of_the_same_keys_do_not_deadlock(using: str) -> None:
    """Keys are locked in one order, whatever order they are given in."""
    keys = [f"k{n}" for n in range(20)]

    def produce(names: list[str]) -> None:
        for _ in range(5):
            enqueue_many([OutgoingMessage(topic="sync", dedup_key=k) for k in names], using=using)

    together([lambda: produce(keys), lambda: produce(keys[::-1])] * 2)
    assert OutboxMessage._base_manager.using(using).count() == 20


def test_operators_with_overlapping_lists_do_not_deadlock(row_locking: str) -> None:
    """Each message is revived once, and nobody fails."""
    ids = [OutboxMessageFactory.on(row_locking, status=Status.DEAD).pk for _ in range(30)]
    queue = outbox.queue.using(row_locking)
    revived = together([lambda: len(queue.requeue(ids)), lambda: len(queue.requeue(ids[::-1]))] * 2)
    assert sum(revived) == 30


def test_operators_whose_queries_are_planned_differently_do_not_deadlock(
    row_locking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One session finds the rows by the index, the other in the order of their making. Both lock them by
    id: otherwise each would come to hold what the other waits for."""
    if connections[row_locking].vendor != "postgresql":
        pytest.skip("only PostgreSQL can be told how to plan")
    monkeypatch.setattr(deadlock, "TRIES", 1)
    queue = outbox.queue.using(row_locking)
    ids = [uuid7() for _ in range(9)]
    for pk in reversed(ids):
        OutboxMessageFactory.on(row_locking, id=pk, status=Status.DEAD)

    def requeue(*refused: str) -> int:
        with connections[row_locking].cursor() as cursor:
            for kind in refused:
                cursor.execute(f"SET enable_{kind}scan = off")
        return len(queue.requeue(ids))

    rows = OutboxMessage._base_manager.using(row_locking)
    with Transaction(row_locking, lambda: rows.select_for_update().get(pk=ids[4])) as middle:
        operators = [in_session(requeue, "seq", "bitmap"), in_session(requeue, "index", "bitmap")]
        assert all(map(waits, operators))
        middle.commit()
    assert sum(operator.result(timeout=10) for operator in operators) == 9


def test_a_session_with_another_time_zone_claims_nothing_early(using: str) -> None:
    """Stored times are the same instant for every session, whatever its own time zone is."""
    row = enqueue("x", delay=3600, using=using)
    queue = outbox.queue.using(using)
    statement = {
        "postgresql": "SET TIME ZONE '+09:00'",
        "mysql": "SET time_zone = '-08:00'",
        "sqlite": "SELECT 1",
    }[connections[using].vendor]

    def look() -> list[Any]:
        with connections[using].cursor() as cursor:
            cursor.execute(statement)
        return queue.claim(limit=5)

    assert in_session(look).result(timeout=10) == []
    row.refresh_from_db()
    assert 3599 <= (row.due_at - row.created_at).total_seconds() <= 3601
