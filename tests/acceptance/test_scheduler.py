"""Scheduler processes: several at once, stopped, killed, with wrong clocks."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from reliable_messaging import OutgoingMessage, clock, jobs, timers
from reliable_messaging.failpoints import VARIABLE as FAILPOINTS
from reliable_messaging.models import JobRun, OutboxMessage, Status, Timer
from tests.testapp.wrong_clock import VARIABLE
from tests.workers import WorkerProcess, eventually

Start = Callable[..., WorkerProcess]
TOPIC = "test.timer"


def messages(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def waiting(using: str) -> Any:
    return Timer._base_manager.using(using).filter(status=Status.READY)


def test_sigterm_ends_it_with_0(using: str, start: Start) -> None:
    """At once: it holds nothing."""
    timers.schedule(TOPIC, delay=0, using=using)
    scheduler = start(using, command="run_scheduler")
    eventually(lambda: messages(using).exists())
    scheduler.send(signal.SIGTERM)
    assert scheduler.wait(10) == 0
    assert "scheduler stopped" in scheduler.log.read_text()


def test_burst_ends_when_nothing_is_due(using: str, start: Start) -> None:
    """What is due later is left."""
    timers.schedule_many([OutgoingMessage(topic=TOPIC, delay=0) for _ in range(3)], using=using)
    timers.schedule(TOPIC, delay=600, using=using)
    assert start(using, "--burst", command="run_scheduler").wait(30) == 0
    assert (messages(using).count(), waiting(using).count()) == (3, 1)


def test_a_disabled_scheduler_stands_by(using: str, start: Start) -> None:
    """With ENABLED = False it fires nothing, and stays until it is stopped."""
    timers.schedule(TOPIC, delay=0, using=using)
    scheduler = start(using, command="run_scheduler", environment={"TEST_ENABLED": "0"})
    eventually(lambda: "worker disabled" in scheduler.log.read_text())
    scheduler.send(signal.SIGTERM)
    assert scheduler.wait(10) == 0
    assert waiting(using).count() == 1


def test_killed_schedulers_double_and_miss_nothing(using: str, start: Start) -> None:
    """Three at once while 600 timers fall due, killed at random moments, and between the messages and the end
    of their timers: 600 messages, each with the id and the due time of its timer, and none before that."""
    dice = random.Random(20261119)
    made = timers.schedule_many(
        [OutgoingMessage(topic=TOPIC, payload=n, delay=2) for n in range(600)], spread=6, using=using
    )

    def begin() -> WorkerProcess:
        failpoint = {FAILPOINTS: f"handed-over:kill:0.2:{dice.random()}"}
        options = ("--poll-max", "0.5", "--batch-size", "20")
        return start(using, *options, command="run_scheduler", environment=failpoint)

    schedulers, died = [begin() for _ in range(3)], 0
    deadline = time.monotonic() + 60
    while waiting(using).exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
        died += sum(not scheduler.alive for scheduler in schedulers)
        if dice.random() < 0.3:
            dice.choice(schedulers).kill()
        schedulers = [scheduler if scheduler.alive else begin() for scheduler in schedulers]
    rows = {pk: (due, made) for pk, due, made in messages(using).values_list("id", "due_at", "created_at")}
    assert {timer.pk for timer in made} == rows.keys()
    assert all(rows[timer.pk][0] == timer.due_at <= rows[timer.pk][1] for timer in made)
    assert died, "none died in the middle: this run shows nothing"


def test_a_wrong_clock_changes_nothing(using: str, start: Start) -> None:
    """Schedulers on machines that are an hour ahead and an hour behind: nothing fires early, or late."""
    jobs.create_or_update("often", topic=TOPIC, cron="* * * * * *", using=using)
    for wrong in ("3600", "-3600"):
        start(using, "--poll-max", "0.5", command="run_scheduler", environment={VARIABLE: wrong})
    soon = timers.schedule_many(
        [OutgoingMessage(topic=TOPIC, delay=1) for _ in range(20)], spread=4, using=using
    )
    timers.schedule(TOPIC, delay=3000, using=using)
    due = {timer.pk: timer.due_at for timer in soon}
    eventually(lambda: messages(using).filter(pk__in=due).count() == len(soon))
    jobs.disable("often", using=using)
    eventually(lambda: not JobRun._base_manager.using(using).filter(status=Status.READY).exists())
    runs = dict(JobRun._base_manager.using(using).values_list("pk", "scheduled_for"))
    assert len(runs) >= 3
    assert len(set(runs.values())) == len(runs)
    for pk, created in messages(using).values_list("id", "created_at"):
        at = due.get(pk) or runs[pk]
        assert at <= created < at + timedelta(minutes=1)  # and not an hour
    assert waiting(using).count() == 1
    assert clock.read(using) < waiting(using).get().due_at
