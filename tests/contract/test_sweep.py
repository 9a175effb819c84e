"""Reaping, expiring, purging; requeue, cancel, retry now."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.test import override_settings
from django.utils import timezone

from reliable_messaging import clock
from reliable_messaging.conf import get_settings
from reliable_messaging.exceptions import SettingsError
from reliable_messaging.ids import lowest_uuid7
from reliable_messaging.models import Failure, Status
from reliable_messaging.workqueue import sweep
from tests.contract.work_items import Bench

DAY = timedelta(days=1)


def configure(**values: object) -> override_settings:
    return override_settings(RELIABLE_MESSAGING=values)


def test_an_ended_lease_comes_back_with_a_crash_counted(bench: Bench) -> None:
    """Nothing but crashes is charged, and it is due at once, as a suspect."""
    bench.make()
    item = bench.claim_one(lease=30)
    assert bench.queue.reap() == 0
    with clock.travel(timedelta(seconds=31)):
        assert bench.queue.reap() == 1
        row = bench.row(item)
        assert (row.status, row.crashes, row.failures, row.owner_token) == (Status.READY, 1, 0, None)
        (again,) = bench.queue.claim_suspect()
    assert (again.id, again.crashes) == (item.id, 1)


def test_a_lease_of_nothing_has_ended_at_once(bench: Bench) -> None:
    """Also within the same tick of the database's clock, however coarse that is."""
    for _ in range(30):
        row = bench.make()
        (item,) = bench.queue.claim(lease=0)
        assert bench.queue.reap() == 1
        bench.queue.cancel([row.pk])
        assert item.id == row.pk


def test_a_crash_loop_ends(bench: Bench) -> None:
    """At MAX_CRASHES it is dead, whatever max_attempts says."""
    bench.make(max_attempts=99)
    with configure(MAX_CRASHES=3):
        for number in range(3):
            with clock.travel(timedelta(minutes=number)):
                (item,) = bench.queue.claim_suspect(lease=1) if number else bench.queue.claim(lease=1)
            with clock.travel(timedelta(minutes=number, seconds=30)):
                assert bench.queue.reap() == 1
    row = bench.row(item)
    assert (row.status, row.crashes, row.failures) == (Status.DEAD, 3, 0)
    assert Failure._base_manager.using(bench.using).get(item_id=item.id).count == 3


def test_reap_names_the_worker_that_died(bench: Bench) -> None:
    """The failure of a crash carries the id of the worker that had claimed it."""
    bench.make()
    worker = bench.make().id  # any id will do
    queue = bench.kind.queue.using(bench.using, worker_id=worker)
    queue.claim(limit=1, lease=0)
    bench.queue.reap()
    assert Failure._base_manager.using(bench.using).get().worker_id == worker


def test_expiry_marks_ready_items_only(bench: Bench) -> None:
    """Past its time a waiting item is expired; a claimed one is left to its handler."""
    soon = timezone.now() + timedelta(seconds=10)
    waiting, running, lasting = bench.make(expires_at=soon), bench.make(expires_at=soon), bench.make()
    bench.rows().filter(pk=waiting.pk).update(priority=-1)
    assert bench.claim_one().id == running.id
    with clock.travel(timedelta(seconds=11)):
        assert bench.queue.expire() == 1
    statuses = [bench.row(item).status for item in (waiting, running, lasting)]
    assert statuses == [Status.EXPIRED, Status.CLAIMED, Status.READY]
    assert bench.row(waiting).finished_at is not None


@pytest.mark.parametrize("status", [Status.DEAD, Status.EXPIRED, Status.CANCELLED])
def test_requeue_revives(bench: Bench, status: Status) -> None:
    """Due now, failures and transient failures 0, crashes at most 1, expiry none, attempts kept."""
    past = timezone.now() - DAY
    made = bench.make(
        status=status,
        finished_at=past,
        due_at=past,
        expires_at=past,
        attempts=7,
        failures=5,
        transient_failures=4,
        first_failed_at=past,
        crashes=5,
    )
    assert [item.id for item in bench.queue.requeue([made.pk])] == [made.pk]
    row = bench.row(made)
    assert (row.status, row.failures, row.transient_failures, row.crashes) == (Status.READY, 0, 0, 1)
    assert (row.attempts, row.finished_at, row.expires_at, row.first_failed_at) == (7, None, None, None)
    assert row.due_at > past
    assert len(bench.queue.claim_suspect()) == 1


def test_requeue_renews_the_expiry_by_the_setting(bench: Bench) -> None:
    """With MESSAGE_TTL, a requeued item gets a new life of that length."""
    made = bench.make(status=Status.DEAD, finished_at=timezone.now())
    with configure(MESSAGE_TTL=600):
        bench.queue.requeue([made.pk])
    row = bench.row(made)
    assert row.expires_at - row.due_at == timedelta(minutes=10)


def test_requeue_leaves_live_and_done_items_alone(bench: Bench) -> None:
    """Ready, claimed and done are not revived; unknown ids are passed over."""
    ready, done = bench.make(due_at=timezone.now() + DAY), bench.make(status=Status.DONE)
    bench.make()
    claimed = bench.claim_one()
    unknown = "01890000-0000-7000-8000-000000000000"
    assert bench.queue.requeue([ready.pk, done.pk, claimed.id, unknown]) == []
    assert bench.row(done).status == Status.DONE


def test_cancel_takes_only_what_waits(bench: Bench) -> None:
    """Ready → cancelled; a claimed item cannot be called back."""
    waiting, running = bench.make(priority=-1), bench.make()
    bench.claim_one()
    cancelled = bench.queue.cancel([waiting.pk, running.pk])
    assert [item.id for item in cancelled] == [waiting.pk]
    assert bench.row(waiting).status == Status.CANCELLED
    assert bench.row(running).status == Status.CLAIMED


def test_retry_now_ends_a_wait_and_keeps_the_budget(bench: Bench) -> None:
    """Only what waits is made due; its failures stay charged."""
    waiting = bench.make(due_at=timezone.now() + DAY, failures=2)
    due = bench.make()
    assert [item.id for item in bench.queue.retry_now([waiting.pk, due.pk])] == [waiting.pk]
    assert bench.row(waiting).failures == 2
    assert {item.id for item in bench.queue.claim(limit=5)} == {waiting.pk, due.pk}


def test_retry_now_leaves_what_is_finished(bench: Bench) -> None:
    """Cancelled before its time came: it does not wait any more."""
    made = bench.make(due_at=timezone.now() + DAY)
    bench.queue.cancel([made.pk])
    assert bench.queue.retry_now([made.pk]) == []
    assert bench.row(made).status == Status.CANCELLED


def finished(bench: Bench, status: Status, days: int, *, made: int = 0) -> object:
    """A row that finished so many days ago; its id is of the time when it was made, as in real life."""
    moment = timezone.now() - timedelta(days=days)
    began = timezone.now() - timedelta(days=made or days)
    pk = UUID(int=lowest_uuid7(began).int + bench.rows().count())
    ended = bench.kind.ended
    return bench.make(id=pk, status=status, created_at=began, finished_at=moment, **ended).pk


def test_purge_deletes_what_is_past_retention(bench: Bench) -> None:
    """Done, expired and cancelled go after their retention; dead, ready and claimed stay."""
    days = bench.kind.kept_days
    old = [finished(bench, s, days + 1) for s in (Status.DONE, Status.EXPIRED, Status.CANCELLED)]
    kept = [finished(bench, Status.DONE, days - 1), finished(bench, Status.DONE, days - 1, made=90)]
    kept.append(finished(bench, Status.DEAD, 400))
    kept.append(bench.make(due_at=timezone.now() - timedelta(days=30)).pk)
    Failure._base_manager.using(bench.using).create(item_id=old[0], fingerprint="x", kind=0, attempt=1)
    assert bench.queue.purge() == 3
    assert set(bench.rows().values_list("pk", flat=True)) == set(kept)
    assert not Failure._base_manager.using(bench.using).exists()


def test_dead_ones_go_only_by_their_own_retention(bench: Bench) -> None:
    """DEAD_RETENTION is off by default; set, it deletes dead rows and nothing else."""
    dead, done = finished(bench, Status.DEAD, 40), finished(bench, Status.DONE, 40)
    with configure(**{bench.kind.retention: None}):
        assert bench.queue.purge() == 0
    with configure(**{bench.kind.retention: None, "DEAD_RETENTION": 30 * DAY}):
        assert bench.queue.purge() == 1
    assert set(bench.rows().values_list("pk", flat=True)) == {done}
    assert dead != done


def test_purge_goes_on_until_all_is_gone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one batch is purged in one call, past rows that must stay."""
    monkeypatch.setattr(sweep, "BATCH", 2)
    for number in range(5):
        finished(bench, Status.DONE, 50 - number)
        finished(bench, Status.DEAD, 50 - number)
    assert bench.queue.purge() == 5
    assert bench.rows().count() == 5


def test_sweeps_go_in_batches(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much there is to do, one transaction does a bounded part of it."""
    monkeypatch.setattr(sweep, "BATCH_WITH_PAYLOAD", 2)
    past = timezone.now() - DAY
    for _ in range(3):
        bench.make(status=Status.CLAIMED, owner_token=uuid4(), leased_until=past)
        bench.make(expires_at=past)
    assert [bench.queue.reap() for _ in range(3)] == [2, 1, 0]
    assert [bench.queue.expire() for _ in range(3)] == [2, 1, 0]


def test_no_retention_deletes_on_ack(bench: Bench) -> None:
    """A retention of 0: an acknowledged item and its failures are gone; a dead one is not. History cannot do
    without one: how a run ends is known after it was handed over."""
    if bench.kind.is_history:
        with configure(**{bench.kind.retention: 0}), pytest.raises(SettingsError, match="must be positive"):
            get_settings()
        return
    bench.make(), bench.make()
    with configure(**{bench.kind.retention: 0}):
        item, other = bench.queue.claim(limit=2)
        bench.queue.abandon([item], "once", delay=0)
        item = bench.claim_one()
        assert bench.queue.ack([item]) == []
        assert bench.queue.ack([item]) == [item]
        bench.queue.fail([other], "for good")
    assert [row.pk for row in bench.rows()] == [other.id]
    assert Failure._base_manager.using(bench.using).get().item_id == other.id
