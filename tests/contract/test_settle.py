"""Settling: fenced by the owner token, and each kind of trouble pays from its own budget."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from django.utils import timezone

from reliable_messaging import clock
from reliable_messaging.exceptions import LostClaim
from reliable_messaging.models import Failure, Status
from reliable_messaging.workqueue import Ack, Fail, Release
from tests.contract.work_items import Bench


def reclaim(bench: Bench) -> Any:
    """Take the item away from its first claimer, as a reaper and another worker would."""
    with clock.travel(timedelta(hours=1)):
        assert bench.queue.reap() == 1
        (item,) = bench.queue.claim_suspect(lease=7200)
    return item


def test_ack_finishes(bench: Bench) -> None:
    """→ done: no token, no lease, a finishing time."""
    bench.make()
    item = bench.claim_one()
    assert bench.queue.ack([item]) == []
    row = bench.row(item)
    assert (row.status, row.owner_token, row.leased_until) == (Status.DONE, None, None)
    assert row.finished_at >= row.last_attempt_at


@pytest.mark.parametrize("verb", ["ack", "abandon", "fail", "release"])
def test_a_stale_owner_changes_nothing_and_is_told(bench: Bench, verb: str) -> None:
    """After someone else has claimed the item, no verb of the first owner touches it."""
    bench.make()
    stale = bench.claim_one(lease=0)
    fresh = reclaim(bench)
    before = bench.rows().filter(pk=fresh.id).values().get()
    extra = ("it failed",) if verb in ("abandon", "fail") else ()
    assert getattr(bench.queue, verb)([stale], *extra) == [stale]
    assert bench.rows().filter(pk=fresh.id).values().get() == before
    assert Failure._base_manager.using(bench.using).exclude(kind=2).count() == 0
    assert bench.queue.ack([fresh]) == []


def test_the_lost_ones_of_a_batch_are_named_and_the_others_settled(bench: Bench) -> None:
    """One lost claim does not spoil its neighbours' settlements."""
    for _ in range(3):
        bench.make()
    items = bench.queue.claim(limit=3, lease=60)
    bench.rows().filter(pk=items[1].id).update(leased_until=timezone.now() - timedelta(hours=1))
    assert bench.queue.reap() == 1
    assert bench.queue.ack(items) == [items[1]]
    assert [bench.row(item).status for item in items] == [Status.DONE, Status.READY, Status.DONE]


def test_a_second_settlement_is_lost(bench: Bench) -> None:
    """What is settled stays settled."""
    bench.make()
    item = bench.claim_one()
    bench.queue.ack([item])
    assert bench.queue.fail([item], "too late") == [item]
    assert bench.row(item).status == Status.DONE


@pytest.mark.parametrize("verb", ["ack", "abandon", "fail", "release", "renew"])
def test_what_was_never_claimed_cannot_be_settled(bench: Bench, verb: str) -> None:
    """Its value has no owner token, and its row has none: that is no match."""
    row = bench.make(due_at=timezone.now() + timedelta(hours=1))
    (item,) = bench.queue.retry_now([row.pk])
    before = bench.rows().filter(pk=row.pk).values().get()
    extra = ("it failed",) if verb in ("abandon", "fail") else ()
    assert item.owner_token is None
    assert getattr(bench.queue, verb)([item], *extra) == [item]
    assert bench.rows().filter(pk=row.pk).values().get() == before


def test_items_of_several_claims_are_settled_together(bench: Bench) -> None:
    """Each is compared with its own token."""
    for _ in range(3):
        bench.make()
    items = [bench.claim_one() for _ in range(3)]
    assert bench.queue.ack(items) == []
    assert [bench.row(item).status for item in items] == [Status.DONE] * 3


def test_inside_a_callers_transaction_the_ack_commits_with_it(bench: Bench) -> None:
    """Rolled back by the caller, the ack never happened, and lost items are still named."""
    bench.make(), bench.make()
    kept, gone = bench.queue.claim(limit=2)
    bench.queue.ack([gone])
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=bench.using):
        assert bench.queue.ack([kept, gone]) == [gone]
        raise ZeroDivisionError
    assert bench.row(kept).status == Status.CLAIMED


@pytest.mark.parametrize("result", [None, "42"])
def test_settle_exactly_is_all_or_nothing(bench: Bench, result: str | None) -> None:
    """In a chunk one lost claim undoes the whole transaction."""
    bench.make(), bench.make()
    first, second = bench.queue.claim(limit=2)
    bench.queue.ack([second])
    with pytest.raises(LostClaim), transaction.atomic(using=bench.using):
        bench.queue.settle_exactly([Ack(item=first), Ack(item=second, result=result)])
    assert bench.row(first).status == Status.CLAIMED


def test_own_failures_use_up_max_attempts(bench: Bench) -> None:
    """The last failure allowed makes it dead; each waits as told, and is written down once."""
    bench.make(max_attempts=3)
    for number in (1, 2, 3):
        with clock.travel(timedelta(minutes=number)):
            item = bench.claim_one()
            assert bench.queue.abandon([item], "no luck", delay=10) == []
            row = bench.row(item)
            assert row.failures == number
            if number < 3:
                assert row.status == Status.READY
                assert row.finished_at is None
    assert row.status == Status.DEAD
    assert row.finished_at is not None
    assert row.last_error == "Error: no luck"
    failure = Failure._base_manager.using(bench.using).get(item_id=item.id)
    assert (failure.count, failure.attempt) == (3, 3)


def test_abandon_waits_for_its_delay(bench: Bench) -> None:
    """Due again after the delay, by the database's clock."""
    bench.make()
    item = bench.claim_one()
    bench.queue.abandon([item], "later", delay=600)
    assert bench.queue.claim() == []
    with clock.travel(timedelta(seconds=599)):
        assert bench.queue.claim() == []
    with clock.travel(timedelta(seconds=602)):
        assert bench.claim_one().id == item.id


def test_infrastructure_failures_do_not_use_up_attempts(bench: Bench) -> None:
    """Thirty of them within the window leave it alive, with no failure of its own."""
    bench.make(max_attempts=2)
    for number in range(30):
        with clock.travel(timedelta(minutes=20 * number)):
            item = bench.claim_one()
            bench.queue.abandon([item], "down", delay=1, transient=True)
    row = bench.row(item)
    assert (row.status, row.failures, row.transient_failures) == (Status.READY, 0, 30)


def test_the_window_kills_only_with_enough_attempts(bench: Bench) -> None:
    """A weekend without workers kills nothing: past the window it still gets max_attempts tries."""
    bench.make(max_attempts=3)
    item = bench.claim_one()
    bench.queue.abandon([item], "down", delay=1, transient=True)
    with clock.travel(timedelta(hours=60)):
        item = bench.claim_one()
        bench.queue.abandon([item], "down", delay=0, transient=True)
        assert bench.row(item).status == Status.READY
    with clock.travel(timedelta(hours=61)):
        item = bench.claim_one()
        bench.queue.abandon([item], "down", delay=0, transient=True)
    assert bench.row(item).status == Status.DEAD


def test_enough_attempts_kill_only_after_the_window(bench: Bench) -> None:
    """The other half of the same rule, just inside 24 hours."""
    bench.make(max_attempts=2)
    for hours in (0, 10, 23):
        with clock.travel(timedelta(hours=hours)):
            item = bench.claim_one()
            bench.queue.abandon([item], "down", delay=0, transient=True)
    assert bench.row(item).status == Status.READY


def test_an_own_failure_ends_a_run_of_infrastructure_failures(bench: Bench) -> None:
    """The destination was reached: its window starts anew."""
    bench.make()
    item = bench.claim_one()
    bench.queue.abandon([item], "down", delay=0, transient=True)
    assert bench.row(item).first_failed_at is not None
    item = bench.claim_one()
    bench.queue.abandon([item], "refused", delay=0)
    row = bench.row(item)
    assert (row.failures, row.transient_failures, row.first_failed_at) == (1, 0, None)


def test_the_budgets_do_not_eat_each_other(bench: Bench) -> None:
    """One short of every limit at once is still alive; then the failure that counts kills it."""
    bench.make(max_attempts=3, failures=2, crashes=4, transient_failures=50)
    with clock.travel(timedelta(minutes=1)):
        (item,) = bench.queue.claim_suspect()
        bench.queue.abandon([item], "down", delay=0, transient=True)
    row = bench.row(item)
    assert (row.status, row.failures, row.crashes, row.transient_failures) == (Status.READY, 2, 4, 51)
    with clock.travel(timedelta(minutes=2)):
        (item,) = bench.queue.claim_suspect()
        bench.queue.abandon([item], "own", delay=0)
    row = bench.row(item)
    assert (row.status, row.failures, row.crashes) == (Status.DEAD, 3, 4)


def test_fail_is_dead_at_once(bench: Bench) -> None:
    """No retry, whatever is left of the budget."""
    bench.make(max_attempts=99)
    item = bench.claim_one()
    bench.queue.fail([item], ValueError("never"))
    row = bench.row(item)
    assert (row.status, row.last_error) == (Status.DEAD, "ValueError: never")


def test_release_charges_nothing(bench: Bench) -> None:
    """Ready again at its old due time, with every counter as it was; only attempts tell."""
    made = bench.make()
    item = bench.claim_one()
    assert bench.queue.release([item]) == []
    row = bench.row(item)
    assert (row.status, row.failures, row.crashes, row.transient_failures) == (Status.READY, 0, 0, 0)
    assert (row.due_at, row.attempts) == (made.due_at, 1)
    assert bench.claim_one().attempts == 2


def test_release_can_wait(bench: Bench) -> None:
    """With a delay it is due later, still uncharged."""
    bench.make()
    item = bench.claim_one()
    bench.queue.release([item], delay=600)
    assert bench.queue.claim() == []
    assert bench.row(item).failures == 0


def test_renew_extends_the_lease(bench: Bench) -> None:
    """A renewed item is not reaped when its first lease would have ended."""
    bench.make()
    item = bench.claim_one(lease=60)
    with clock.travel(timedelta(seconds=50)):
        assert bench.queue.renew([item], lease=60) == []
    with clock.travel(timedelta(seconds=90)):
        assert bench.queue.reap() == 0
        assert bench.queue.ack([item]) == []


def test_renew_compares_the_token_not_the_time(bench: Bench) -> None:
    """A lease that ended, but that nobody took, is renewed; one that someone took is lost."""
    bench.make()
    item = bench.claim_one(lease=0)
    assert bench.queue.renew([item], lease=0) == []
    fresh = reclaim(bench)
    assert bench.queue.renew([item], lease=60) == [item]
    assert bench.row(item).owner_token == fresh.owner_token


def test_exchange_settles_and_claims_in_one_transaction(bench: Bench) -> None:
    """What is finished is done and the next is claimed; a lost one does not stop it."""
    for _ in range(4):
        bench.make()
    first, second, third = bench.queue.claim(limit=3)
    bench.queue.ack([third])
    lanes = bench.queue.look(["default"]).lanes
    settlements = [Ack(item=first), Fail(item=second, error=_report()), Release(item=third)]
    exchanged = bench.queue.exchange(settlements, lanes=lanes, limit=5)
    assert exchanged.lost == [third]
    assert len(exchanged.claimed) == 1
    assert [bench.row(item).status for item in (first, second)] == [Status.DONE, Status.DEAD]


def test_a_result_is_kept(bench: Bench) -> None:
    """Also beside others that have none."""
    bench.make(), bench.make()
    plain, telling = bench.queue.claim(limit=2)
    assert bench.queue.settle([Ack(item=plain), Ack(item=telling, result='{"a":1}')]) == []
    assert (bench.row(plain).result, bench.row(telling).result) == (None, '{"a":1}')
    assert bench.rows().filter(status=Status.DONE).count() == 2


def test_failures_go_with_a_deleted_item(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With delete-on-ack neither the row nor its failures stay; the lost one is named, and stays."""
    queue = bench.queue.using(bench.using)
    monkeypatch.setattr(queue, "_retention", lambda: timedelta(0))
    bench.make()
    bench.queue.abandon([bench.claim_one()], "once", delay=0)
    bench.make()
    with_trouble, without = queue.claim(limit=2)
    stale = replace(without, owner_token=uuid4())
    assert queue.ack([with_trouble, stale]) == [stale]
    assert queue.ack([stale]) == [stale]
    assert [row.pk for row in bench.rows()] == [without.id]
    assert queue.ack([without]) == []
    assert not bench.rows().exists()
    assert not Failure._base_manager.using(bench.using).exists()


def test_different_failures_are_kept_apart_and_equal_ones_counted(bench: Bench) -> None:
    """24 hours of retries are one row with a count, not 288 tracebacks."""
    bench.make(max_attempts=9)
    for error in (ValueError("a"), ValueError("b"), KeyError("c")):
        item = bench.claim_one()
        bench.queue.abandon([item], error, delay=0)
    failures = Failure._base_manager.using(bench.using).filter(item_id=item.id).order_by("id")
    assert [(f.error_class, f.count, f.message) for f in failures] == [
        ("ValueError", 2, "b"),
        ("KeyError", 1, "'c'"),
    ]


def _report() -> Any:
    from reliable_messaging.report import ErrorReport, FailureKind

    return ErrorReport.plain("Error", "x", FailureKind.OWN)
