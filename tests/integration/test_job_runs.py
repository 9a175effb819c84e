"""The history of runs: how each ended is stored in the transaction in which its message ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connections, transaction
from django.test.utils import override_settings

from reliable_messaging import PermanentError, clock, enqueue, jobs, outbox
from reliable_messaging.jobs import endings
from reliable_messaging.models import JobRun, OutboxMessage, RunOutcome, Status
from reliable_messaging.testing import run_due
from reliable_messaging.workers import Scheduler, SchedulerOptions
from reliable_messaging.workers.maintenance import Maintenance
from tests.sessions import in_session
from tests.workers import handling, run_worker

TOPIC = "test.run"


def rows(using: str) -> Any:
    return JobRun._base_manager.using(using)


def start(using: str, name: str = "nightly", **options: Any) -> JobRun:
    """A run whose message is there."""
    jobs.create_or_update(name, topic=TOPIC, cron="0 0 1 1 *", using=using, **options)
    run = jobs.trigger(name, using=using)
    jobs.fire_all_due(using=using)
    return run


def again(using: str, run: JobRun) -> JobRun:
    found: JobRun = rows(using).get(pk=run.pk)
    return found


def claim(using: str) -> Any:
    (item,) = outbox.queue.using(using).claim(limit=1)
    return item


@pytest.mark.parametrize("atomic", [True, False])
def test_a_run_that_succeeds(using: str, atomic: bool) -> None:
    """Start, end, duration, attempts and what the handler returned; by a real worker, on every path."""
    run = start(using)
    with handling(TOPIC, lambda message: {"rows": 7}, atomic=atomic):
        run_worker(using)
    ended = again(using, run)
    assert (ended.outcome, ended.output, ended.error, ended.attempts) == (
        RunOutcome.SUCCEEDED,
        {"rows": 7},
        "",
        1,
    )
    assert run.created_at <= ended.started_at <= ended.ended_at
    assert ended.duration is not None
    assert timedelta(0) < ended.duration < timedelta(seconds=20)


@pytest.mark.parametrize("atomic", [True, False])
def test_nothing_to_keep_is_no_reason_to_miss_it(using: str, atomic: bool) -> None:
    """A message without a result would be acknowledged by a single statement, which knows nothing of runs."""
    run = start(using)
    enqueue(TOPIC, using=using)
    with handling(TOPIC, lambda message: None, atomic=atomic):
        run_worker(using)
    assert again(using, run).outcome == RunOutcome.SUCCEEDED
    assert set(OutboxMessage._base_manager.using(using).values_list("status", flat=True)) == {Status.DONE}


def test_what_an_atomic_handler_wrote_commits_with_the_outcome(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or not at all: an outcome that cannot be written undoes the acknowledgement."""
    run = start(using)
    item = claim(using)
    with monkeypatch.context() as patch:
        patch.setattr("reliable_messaging.job_outcomes._update", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            outbox.queue.using(using).ack([item])
    assert OutboxMessage._base_manager.using(using).get(pk=run.pk).status == Status.CLAIMED
    assert again(using, run).outcome is None
    assert outbox.queue.using(using).ack([item]) == []
    assert again(using, run).outcome == RunOutcome.SUCCEEDED


def test_a_run_that_fails(using: str) -> None:
    """After its last attempt, with the error of that one; until then it has not ended."""
    run = start(using, max_attempts=2)

    def fail(message: Any) -> None:
        raise ValueError(f"attempt {message.attempts}")

    with handling(TOPIC, fail):
        run_due(using=using)
        assert again(using, run).outcome is None
        with clock.travel(timedelta(hours=1)):
            run_due(using=using)
    ended = again(using, run)
    assert (ended.outcome, ended.attempts) == (RunOutcome.FAILED, 2)
    assert "attempt 2" in ended.error
    assert ended.started_at is not None


def test_a_run_whose_worker_dies_has_failed_in_the_end(using: str) -> None:
    """Reaping ends it too. When it was begun is known; how long it took, nobody knows."""
    run = start(using)
    with override_settings(RELIABLE_MESSAGING={"MAX_CRASHES": 1}):
        claim(using)
        with clock.travel(timedelta(hours=1)):
            assert outbox.queue.using(using).reap() == 1
    ended = again(using, run)
    assert (ended.outcome, ended.duration) == (RunOutcome.FAILED, None)
    assert "LeaseEnded" in ended.error
    assert ended.started_at is not None


def test_a_run_that_expires(using: str) -> None:
    """Nobody had time for it before it was pointless."""
    run = start(using, expires_in=60)
    with clock.travel(timedelta(hours=1)):
        assert outbox.queue.using(using).expire() == 1
    ended = again(using, run)
    assert (ended.outcome, ended.started_at) == (RunOutcome.EXPIRED, None)


@pytest.mark.parametrize("verb", [jobs.cancel, outbox.cancel])
def test_a_run_that_is_cancelled(using: str, verb: Callable[..., bool]) -> None:
    """By its own verb, or as the message that it is."""
    run = start(using)
    assert verb(run.pk, using=using)
    ended = again(using, run)
    assert (ended.outcome, ended.started_at) == (RunOutcome.CANCELLED, None)
    assert not verb(run.pk, using=using)


def test_a_run_that_has_started_cannot_be_cancelled(using: str) -> None:
    """It is running, and cannot be called back."""
    run = start(using)
    claim(using)
    assert not jobs.cancel(run.pk, using=using)
    assert again(using, run).outcome is None


def test_a_run_without_a_message_can_be_cancelled(using: str) -> None:
    """It never gets one."""
    start(using, overlap="queue")
    held = jobs.trigger("nightly", using=using)
    jobs.fire_all_due(using=using)
    assert jobs.cancel(str(held.pk), using=using)
    assert again(using, held).outcome == RunOutcome.CANCELLED
    assert not OutboxMessage._base_manager.using(using).filter(pk=held.pk).exists()


def test_a_requeued_run_is_open_again(using: str) -> None:
    """And ends once more."""
    run = start(using)

    def fail(message: Any) -> None:
        raise PermanentError("no")

    with handling(TOPIC, fail):
        run_due(using=using)
    assert again(using, run).outcome == RunOutcome.FAILED
    outbox.requeue(run.pk, using=using)
    reopened = again(using, run)
    assert (reopened.outcome, reopened.started_at, reopened.ended_at, reopened.duration) == (None,) * 4
    with handling(TOPIC, lambda message: "at last"):
        run_due(using=using)
    ended = again(using, run)
    assert (ended.outcome, ended.output, ended.error) == (RunOutcome.SUCCEEDED, "at last", "")


def test_a_rollback_takes_the_outcome_along(using: str) -> None:
    """It is written in the very transaction of the settlement."""
    run = start(using)
    item = claim(using)
    with transaction.atomic(using=using):
        outbox.queue.using(using).ack([item])
        assert again(using, run).outcome == RunOutcome.SUCCEEDED
        transaction.set_rollback(True, using=using)
    assert again(using, run).outcome is None


def test_a_stale_worker_ends_no_run(using: str) -> None:
    """Its claim was lost, and so is what it has to say."""
    run = start(using)
    stale = claim(using)
    with clock.travel(timedelta(hours=1)):
        outbox.queue.using(using).reap()
        outbox.queue.using(using).claim_suspect()
    assert outbox.queue.using(using).ack([stale]) == [stale]
    assert again(using, run).outcome is None


def test_history_outlives_messages_that_are_deleted_when_done(using: str) -> None:
    """OUTBOX_RETENTION = 0: the message is gone, and its run has all that there is to know."""
    run = start(using)
    with override_settings(RELIABLE_MESSAGING={"OUTBOX_RETENTION": 0}):
        with handling(TOPIC, lambda message: [1, 2]):
            run_worker(using)
    assert not OutboxMessage._base_manager.using(using).exists()
    ended = again(using, run)
    assert (ended.outcome, ended.output) == (RunOutcome.SUCCEEDED, [1, 2])
    assert ended.started_at is not None


def test_runs_that_have_not_ended_are_not_purged(using: str) -> None:
    """However long their messages are retried; the others go after RUN_RETENTION, counted from their end."""
    ended, late, running = start(using), start(using, "late"), start(using, "other")
    outbox.cancel(ended.pk, using=using)
    with clock.travel(timedelta(days=31)):
        outbox.cancel(late.pk, using=using)
        assert jobs.queue.using(using).purge() == 1
    assert {run.pk for run in rows(using)} == {late.pk, running.pk}


def test_a_run_that_cannot_become_a_message_has_failed(using: str) -> None:
    """It goes dead as a work item, which ends it."""
    jobs.create_or_update("nightly", topic=TOPIC, cron="0 0 1 1 *", using=using)
    run = jobs.trigger("nightly", using=using)
    (item,) = jobs.queue.using(using).claim()
    jobs.queue.using(using).fail([item], "cannot be")
    ended = again(using, run)
    assert (ended.status, ended.outcome) == (Status.DEAD, RunOutcome.FAILED)
    assert "cannot be" in ended.error
    jobs.queue.using(using).requeue([run.pk])
    assert again(using, run).outcome is None
    assert jobs.fire_all_due(using=using) == 1


def test_somebodys_own_processor_may_do_without_messages(using: str) -> None:
    """The verbs of the queue are enough: claim, and acknowledge."""
    jobs.create_or_update("nightly", topic=TOPIC, cron="0 0 1 1 *", using=using)
    run = jobs.trigger("nightly", using=using)
    (item,) = jobs.queue.using(using).claim()
    assert (item.job, item.scheduled_for) == ("nightly", run.scheduled_for)
    assert jobs.queue.using(using).ack([item]) == []
    assert again(using, run).outcome == RunOutcome.SUCCEEDED


def test_one_due_time_cannot_have_two_runs(using: str) -> None:
    """Not even if somebody writes past all of us."""
    jobs.create_or_update("nightly", topic=TOPIC, cron="0 0 1 1 *", using=using)
    first = jobs.planning.run_of(jobs._get("nightly", using), clock.read(using))
    first.slot = first.scheduled_for
    first.save(using=using, force_insert=True)
    second = jobs.planning.run_of(jobs._get("nightly", using), first.scheduled_for, slot=first.slot)
    with pytest.raises(DatabaseError), transaction.atomic(using=using):
        second.save(using=using, force_insert=True)


def test_the_end_of_a_run_and_the_plan_of_the_next_one_do_not_deadlock(row_locking: str) -> None:
    """Whoever ends a run locks no job."""
    run = start(row_locking, overlap="queue")
    item = claim(row_locking)
    with transaction.atomic(using=row_locking):
        assert jobs.storing.locked(row_locking, "nightly") is not None
        assert in_session(lambda: outbox.queue.using(row_locking).ack([item])).result(timeout=20) == []
    assert again(row_locking, run).outcome == RunOutcome.SUCCEEDED


def test_maintenance_of_runs_is_any_schedulers(using: str) -> None:
    """Those that somebody's own processor died over come back."""
    jobs.create_or_update("nightly", topic=TOPIC, cron="0 0 1 1 *", using=using)
    run = jobs.trigger("nightly", using=using)
    queue = jobs.queue.using(using)
    queue.claim()
    with clock.travel(timedelta(hours=1)):
        assert Maintenance(queue=queue).run(queue.look(queue.discover_queues()))
        assert again(using, run).status == Status.READY
        assert jobs.fire_all_due(using=using) == 1
    assert connections[using].in_atomic_block is False


def test_what_ended_unseen_is_ended_in_the_end(using: str) -> None:
    """A worker of an older version has settled the message without a word, or somebody has deleted it: a job
    whose runs must not overlap would wait for ever."""
    done, failed, gone, waiting = (start(using, name) for name in ("done", "failed", "gone", "waiting"))
    messages = OutboxMessage._base_manager.using(using)
    now = clock.read(using)
    messages.filter(pk=done.pk).update(status=Status.DONE, finished_at=now, result="[1]", attempts=2)
    messages.filter(pk=failed.pk).update(status=Status.DEAD, finished_at=now, last_error="broken")
    messages.filter(pk=gone.pk).delete()
    assert endings.catch_up(using) == 3
    assert endings.catch_up(using) == 0
    found = {run.pk: (run.outcome, run.output, run.error) for run in rows(using)}
    assert found == {
        done.pk: (RunOutcome.SUCCEEDED, [1], ""),
        failed.pk: (RunOutcome.FAILED, None, "broken"),
        gone.pk: (RunOutcome.FAILED, None, endings.GONE),
        waiting.pk: (None, None, ""),
    }
    assert again(using, done).ended_at == now
    assert again(using, done).attempts == 2


def test_a_scheduler_ends_what_ended_unseen(using: str) -> None:
    """When it starts, and every CLEANUP_INTERVAL."""
    run = start(using)
    OutboxMessage._base_manager.using(using).filter(pk=run.pk).delete()
    scheduler = Scheduler(SchedulerOptions(database=using, wakeup=False))
    scheduler.turn()
    scheduler.waiter.close()
    assert again(using, run).outcome == RunOutcome.FAILED
