"""The scheduler: what it makes, when it looks, and what it survives."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, OperationalError, connections, transaction
from django.test.utils import CaptureQueriesContext

from reliable_messaging import OutgoingMessage, clock, jobs, outbox, periodic, timers
from reliable_messaging.jobs import planning
from reliable_messaging.jobs.declared import forget
from reliable_messaging.models import Job, JobRun, OutboxMessage, Status, Timer
from reliable_messaging.session import private_connection
from reliable_messaging.workers import Scheduler, SchedulerOptions, scheduler
from reliable_messaging.workers.process import loop
from tests.sessions import in_session
from tests.workers import eventually

TOPIC = "test.scheduler"
SELDOM = timedelta(minutes=5)


def messages(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


@contextmanager
def ticking(using: str, **options: Any) -> Iterator[Scheduler]:
    """One whose turns the test takes."""
    found = Scheduler(SchedulerOptions(database=using, **{"wakeup": False, **options}))
    try:
        yield found
    finally:
        found.waiter.close()


@contextmanager
def running(using: str, **options: Any) -> Iterator[Scheduler]:
    """One in a thread, which has looked once; ``last_delay`` is what its last turn has said."""
    found: Any = Scheduler(SchedulerOptions(database=using, **options))
    looked = threading.Event()

    def turn() -> float:
        found.last_delay = delay = found.turn()
        looked.set()
        return delay

    def work() -> None:
        try:
            with private_connection(using, found.session_limits):
                found.start()
                loop(turn, until=lambda: found.finished, waiter=found.waiter, alias=using)
                found.stop()
        finally:
            connections.close_all()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        assert looked.wait(30)
        yield found
    finally:
        found.stop_flag.request()
        thread.join(30)
        assert not thread.is_alive()
        found.waiter.close()


def test_it_sleeps_until_the_next_is_due(using: str) -> None:
    """Not until the next poll; and no longer than that."""
    with ticking(using) as found:
        assert found.turn() == 5.0
        timers.schedule(TOPIC, delay=600, using=using)
        assert found.turn() == 5.0
        timers.schedule(TOPIC, delay=2, using=using)
        assert 1 < found.turn() <= 2


def test_it_looks_again_behind_what_it_has_fired(using: str) -> None:
    """A look shows the first of each lane only."""
    timers.schedule(TOPIC, delay=0, using=using)
    timers.schedule(TOPIC, delay=2, using=using)
    with ticking(using) as found:
        assert found.turn() == 0.0
        assert 1 < found.turn() <= 2
    assert messages(using).count() == 1


def test_every_queue_and_priority_is_served(using: str) -> None:
    """Also queues that it has not seen before."""
    with ticking(using) as found:
        found.turn()
        for queue in ("default", "mail", "reports"):
            for priority in (-1, 0, 1):
                timers.schedule(TOPIC, delay=0, queue=queue, priority=priority, using=using)
        found.turn()
        assert found.fired == 9


def test_a_large_backlog_is_fired_in_batches(using: str) -> None:
    """Each in a transaction of its own."""
    timers.schedule_many([OutgoingMessage(topic=TOPIC, delay=0) for _ in range(25)], using=using)
    with ticking(using, batch_size=10) as found:
        fired = []
        while found.turn() == 0.0:
            fired.append(found.fired)
    assert fired == [10, 20, 25]


def test_a_scheduler_that_dies_has_done_nothing(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between writing the messages and ending the timers: all of it is undone, and is fired by the next."""
    timers.schedule_many([OutgoingMessage(topic=TOPIC, delay=0) for _ in range(3)], using=using)

    def die(point: str) -> None:
        raise OperationalError(point)

    with ticking(using) as found:
        with monkeypatch.context() as patch:
            patch.setattr("reliable_messaging.workqueue.hand_over.hit", die)
            with pytest.raises(OperationalError, match="handed-over"):
                found.turn()
        assert not messages(using).exists()
        assert Timer._base_manager.using(using).filter(status=Status.READY, attempts=0).count() == 3
        found.turn()
    assert messages(using).count() == 3


def test_a_commit_wakes_a_scheduler(using: str) -> None:
    """On PostgreSQL, where its next poll is minutes away."""
    if using != "postgres":
        return
    with running(using, poll_max=SELDOM) as found:
        eventually(lambda: found._listener is not None and found._listener._proven)
        timers.schedule(TOPIC, delay=0.2, using=using)
        eventually(lambda: messages(using).exists(), seconds=10)


def test_a_burst_of_commits_is_not_missed(using: str) -> None:
    """Most of them send no NOTIFY, because others did just before: a scheduler that was woken looks once
    more, a moment later."""
    if using != "postgres":
        return
    with running(using, poll_max=SELDOM) as found:
        eventually(lambda: found._listener is not None and found._listener._proven)
        for _ in range(60):
            timers.schedule(TOPIC, delay=0, using=using)
            time.sleep(0.01)
        eventually(lambda: messages(using).count() == 60, seconds=10)


def test_who_makes_a_timer_due_by_hand_wakes_a_scheduler(using: str) -> None:
    """As the admin's action does."""
    if using != "postgres":
        return
    timer = timers.schedule(TOPIC, delay=600, using=using)
    with running(using, poll_max=SELDOM) as found:
        eventually(lambda: found._listener is not None and found._listener._proven)
        timers.queue.using(using).retry_now([timer.pk])
        eventually(lambda: messages(using).exists(), seconds=10)


def every_second(using: str, **options: Any) -> Job:
    return jobs.create_or_update("often", topic=TOPIC, cron="* * * * * *", using=using, **options)


def yearly(using: str, **options: Any) -> Job:
    return jobs.create_or_update("seldom", topic=TOPIC, cron="0 0 1 1 *", using=using, **options)


def test_it_sleeps_until_the_next_job_is_due(using: str) -> None:
    """Then it makes the run, and its message in the turn after that."""
    ahead = yearly(using).next_run_at - clock.read(using)
    with ticking(using) as found:
        assert found.turn() == 5.0
        with clock.travel(ahead - timedelta(seconds=2)):
            assert 1 < found.turn() <= 2
        with clock.travel(ahead):
            assert found.turn() == found.turn() == 0.0
            assert found.turn() == 5.0
        assert (found.fired, messages(using).count()) == (1, 1)


def test_jobs_of_the_code_are_there_when_it_starts(
    using: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As soon as the database lets it, and once. What stays as somebody has made it is told of."""
    tried: list[str] = []

    def sync(*, using: str) -> jobs.Synced:
        tried.append(using)
        if len(tried) == 1:
            raise OperationalError("away")
        return jobs.Synced(created=["nightly"], kept={"hourly": ["cron"]})

    monkeypatch.setattr(jobs, "sync", sync)
    connections[using].ensure_connection()
    with ticking(using) as found:
        found.turn()
        found.turn()
        assert tried == [using], "it is not tried at each turn"
        found._sync_rest.end()
        found.turn()
        found.turn()
    assert tried == [using, using]
    assert "job kept as it is job=hourly changed_by_hand=cron" in caplog.text


def test_a_job_that_is_due_soon_wakes_a_scheduler(using: str) -> None:
    """One that is made, enabled or triggered, where the next poll is minutes away."""
    if using != "postgres":
        return
    with running(using, poll_max=SELDOM) as found:
        eventually(lambda: found._listener is not None and found._listener._proven)
        every_second(using)
        eventually(lambda: messages(using).exists(), seconds=10)
        jobs.disable("often", using=using)
        eventually(lambda: found.last_delay > 1, seconds=10)
        run = jobs.trigger("often", using=using)
        eventually(lambda: messages(using).filter(pk=run.pk).exists(), seconds=10)


def test_the_end_of_a_run_wakes_a_scheduler(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run of its job may wait for it."""
    if using != "postgres":
        return
    monkeypatch.setattr(scheduler, "HELD_POLL", SELDOM)
    yearly(using, overlap="queue")
    with running(using, poll_max=SELDOM) as found:
        eventually(lambda: found._listener is not None and found._listener._proven)
        jobs.trigger("seldom", using=using), jobs.trigger("seldom", using=using)
        eventually(lambda: messages(using).count() == 1 and found.last_delay > 1, seconds=10)
        outbox.queue.using(using).ack(outbox.queue.using(using).claim(limit=1))
        eventually(lambda: messages(using).count() == 2, seconds=10)


def test_it_looks_more_often_while_runs_wait_for_others(using: str) -> None:
    """Where nobody can wake it."""
    yearly(using, overlap="queue")
    jobs.trigger("seldom", using=using), jobs.trigger("seldom", using=using)
    with ticking(using) as found:
        while not (delay := found.turn()):
            pass
        assert 0.5 < delay <= 1
    assert messages(using).count() == 1


def test_a_locked_job_does_not_hide_the_next_one(row_locking: str) -> None:
    """Somebody changes it just now; it is looked for again soon."""
    ahead = yearly(row_locking).next_run_at - clock.read(row_locking)
    with ticking(row_locking) as found:
        found.turn()
        with clock.travel(ahead), transaction.atomic(using=row_locking):
            jobs.storing.locked(row_locking, "seldom")
            assert in_session(found.turn).result(timeout=20) == 0.1


def test_a_scheduler_that_dies_while_planning_has_planned_nothing(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs and the next due time commit together."""
    job = yearly(using)
    due = job.next_run_at

    def die(point: str) -> None:
        raise OperationalError(point)

    with ticking(using) as found, clock.travel(due - clock.read(using)):
        found._sync_once()
        with monkeypatch.context() as patch:
            patch.setattr("reliable_messaging.jobs.planning.hit", die)
            with pytest.raises(OperationalError, match="jobs-planned"):
                found.turn()
        job.refresh_from_db(using=using)
        assert job.next_run_at == due
        assert not JobRun._base_manager.using(using).exists()
        found.turn()
    assert JobRun._base_manager.using(using).filter(scheduled_for=due).count() == 1


def test_a_locked_timer_does_not_hide_the_next_one(row_locking: str) -> None:
    """Somebody moves or cancels the first of a lane just now: the look shows nothing behind it."""
    first = timers.schedule(TOPIC, delay=0, using=row_locking)
    timers.schedule(TOPIC, delay=1, using=row_locking)
    with ticking(row_locking) as found, transaction.atomic(using=row_locking):
        list(Timer._base_manager.using(row_locking).filter(pk=first.pk).select_for_update())
        assert in_session(found.turn).result(timeout=20) <= 0.1


def test_one_that_only_waits_asks_little(using: str) -> None:
    """One transaction for each look."""
    timers.schedule(TOPIC, delay=600, using=using)
    with ticking(using) as found:
        found.turn()
        with CaptureQueriesContext(connections[using]) as queries:
            found.turn()
    asked = [query["sql"] for query in queries]
    assert sum(sql.startswith(("BEGIN", "START")) for sql in asked) <= 1
    assert sum("SELECT" in sql for sql in asked) <= (14 if using == "default" else 7)


def test_what_was_fired_is_purged_in_the_end(using: str) -> None:
    """After TIMER_RETENTION, by any scheduler."""
    timers.schedule(TOPIC, delay=0, using=using)
    with ticking(using) as found:
        found.turn()
    with clock.travel(timedelta(days=8)), ticking(using) as found:
        found.turn()
        found.turn()
    assert not Timer._base_manager.using(using).exists()


def test_a_silent_database_ends_the_process(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither answer nor error for three leases: such a call never returns. SQLite is a file."""
    ended: list[str] = []
    monkeypatch.setattr(scheduler, "_end_process", ended.append)
    with ticking(using, lease=timedelta(seconds=1)) as found:
        found._turn_began = clock.monotonic() - 60
        assert (found._dead_wire() is None) == (using == "default")
        found._turn_began = None
        assert found._dead_wire() is None


def test_a_job_that_cannot_be_written_holds_up_no_other(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are tried one by one then, and that one rests; timers go on meanwhile."""
    real = planning._plan

    def plan(alias: str, found: list[Job], now: Any) -> Any:
        if any(job.name == "poison" for job in found):
            raise DataError("cannot be written")
        return real(alias, found, now)

    monkeypatch.setattr(planning, "_plan", plan)
    for name in ("poison", "sound"):
        jobs.create_or_update(name, topic=TOPIC, cron="* * * * *", using=using)
    late = clock.read(using) - timedelta(seconds=2)
    Job._base_manager.using(using).update(next_run_at=late)
    timers.schedule(TOPIC, delay=0, using=using)
    with ticking(using) as found:
        while not found.turn():
            pass
        assert messages(using).count() == 2
        assert found.turn() > 0.1  # and no busy loop


def test_a_job_that_somebody_keeps_locked_keeps_nothing_else(
    row_locking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a scheduler that starts, and has to change that very job."""

    def sync(*, using: str) -> jobs.Synced:
        raise OperationalError("lock timeout")

    monkeypatch.setattr(jobs, "sync", sync)
    timers.schedule(TOPIC, delay=0, using=row_locking)
    with ticking(row_locking) as found:
        found.turn()
    assert messages(row_locking).exists()


def test_jobs_that_are_as_the_code_says_are_not_locked(row_locking: str) -> None:
    """Somebody may have locked one for long, in a transaction of his own."""
    yearly(row_locking)
    declared = {"name": "seldom", "topic": TOPIC, "cron": "0 0 1 1 *", "using": row_locking}
    function = periodic(**declared)(lambda message: None)
    try:
        jobs.sync(using=row_locking)
        with transaction.atomic(using=row_locking):
            jobs.storing.locked(row_locking, "seldom")
            synced = in_session(lambda: jobs.sync(using=row_locking)).result(timeout=20)
        assert synced == jobs.Synced()
    finally:
        forget(function)
