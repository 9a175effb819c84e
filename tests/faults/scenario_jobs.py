"""Schedulers that are killed while jobs are due every second: each due time is one run, and one message."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.db import connections

from reliable_messaging import clock, jobs
from reliable_messaging.failpoints import VARIABLE as FAILPOINTS
from reliable_messaging.models import Job, JobRun, OutboxMessage, Status
from tests.workers import WorkerProcess, starting

from .chaos import Entry as ChaosEntry
from .result import Result

TOPIC = "test.effect"
SCHEDULERS = 5
SECOND = timedelta(seconds=1)
PATIENCE = 60.0
PLANNED_WITHIN = timedelta(seconds=5)
"""A job that was up to date is switched off so soon."""


def kill_schedulers(using: str, *, seed: int, number: int, seconds: float) -> Result:
    """Jobs that run every second; schedulers die at random moments, and in the middle of what they do."""
    dice = random.Random(seed)
    made = [
        jobs.create_or_update(f"job-{n}", topic=TOPIC, cron="* * * * * *", misfire="all", using=using)
        for n in range(number)
    ]
    with TemporaryDirectory(prefix="rm_jobs_") as directory, starting(Path(directory) / "log") as start:

        def begin() -> WorkerProcess:
            points = f"jobs-planned:kill:0.05:{dice.random()},handed-over:kill:0.05:{dice.random()}"
            options = ("--poll-max", "0.5")
            return start(using, *options, command="run_scheduler", environment={FAILPOINTS: points})

        schedulers = [begin() for _ in range(SCHEDULERS)]
        faults, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(dice.uniform(0.2, 0.8))
            dice.choice(schedulers).kill()
            died = [scheduler for scheduler in schedulers if not scheduler.alive]
            faults += len(died)
            schedulers = [s for s in schedulers if s.alive] + [begin() for _ in died]
        ends = _settle(using, made, begin)
    problems = [*_judge(using, made, ends)]
    messages = OutboxMessage._base_manager.using(using).count()
    return Result(
        scenario=f"{number} jobs a second, schedulers killed",
        database=connections[using].display_name,
        messages=messages,
        faults=faults,
        problems=tuple(problems if faults else [*problems, "none was killed: this run shows nothing"]),
    )


def _settle(using: str, made: list[Job], begin: Any) -> dict[str, datetime]:
    """Let them catch up, switch the jobs off, and wait until each run has its message; returns the last due
    time of each job. With one more scheduler: all others may just have died."""
    scheduler = begin()

    def wait_for(condition: Any) -> None:
        nonlocal scheduler
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "the schedulers do not catch up"
            scheduler = scheduler if scheduler.alive else begin()
            time.sleep(0.05)

    wait_for(
        lambda: not Job._base_manager.using(using).filter(next_run_at__lte=clock.now() - SECOND).exists()
    )
    ends = {}
    for job in made:
        jobs.disable(job.name, using=using)
        now, last = clock.read(using), job.last_run
        assert last is not None, f"{job.name} has never run"
        assert now - last.scheduled_for < PLANNED_WITHIN, f"{job.name} has not run since {last.scheduled_for}"
        ends[job.name] = last.scheduled_for
    wait_for(lambda: not runs(using).filter(status=Status.READY).exists())
    return ends


def runs(using: str) -> Any:
    return JobRun._base_manager.using(using)


def _judge(using: str, made: list[Job], ends: dict[str, datetime]) -> Iterator[str]:
    for job in made:
        times = Counter(runs(using).filter(job=job.name).values_list("scheduled_for", flat=True))
        assert job.next_run_at is not None
        expected = _every_second(job.next_run_at, ends[job.name])
        if missed := [at for at in expected if at not in times]:
            yield f"{job.name} has missed {len(missed)} due times, the first at {missed[0]}"
        if doubled := [at for at, count in times.items() if count > 1]:
            yield f"{job.name} has run twice for {doubled[0]}"
        if early := [at for at in times if at not in set(expected)]:
            yield f"{job.name} has run at {early[0]}, which is no due time"
    carried = OutboxMessage._base_manager.using(using).values_list("pk", flat=True)
    if set(carried) != set(runs(using).values_list("pk", flat=True)):
        yield "runs and messages do not go together"
    early = [
        row
        for row in OutboxMessage._base_manager.using(using).values_list("scheduled_for", "created_at")
        if row[1] < row[0]
    ]
    if early:
        yield f"{len(early)} messages were made before they were due"


def _every_second(first: datetime, last: datetime) -> list[datetime]:
    return [first + n * SECOND for n in range(int((last - first) / SECOND) + 1)]


ENTRIES = [ChaosEntry("jobs", kill_schedulers, {"number": 20, "seconds": 100.0})]
