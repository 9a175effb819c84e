"""``run_worker``: an outbox worker and a scheduler in one process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from reliable_messaging import Message, OutgoingMessage, enqueue, timers
from reliable_messaging.exceptions import ReliableMessagingError
from reliable_messaging.failpoints import VARIABLE as FAILPOINTS
from reliable_messaging.models import OutboxMessage, Status, Timer, Worker
from reliable_messaging.workers import (
    Scheduler,
    SchedulerOptions,
    WorkerOptions,
    run_worker_process,
    scheduling,
)
from reliable_messaging.workers.launch import TRY_AGAIN
from reliable_messaging.workers.process import _run_scheduler
from reliable_messaging.workers.scheduling import Companion, SchedulingWorker
from tests.acceptance.test_command import manage
from tests.testapp.models import Effect
from tests.workers import ROOT, WorkerProcess, eventually, handling

Start = Callable[..., WorkerProcess]
NAME = "run_worker"
SELDOM = ("--no-wakeup", "--poll-min", "60", "--poll-max", "60")
"""Nobody polls, and no database wakes anybody."""


def messages(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def waiting(using: str) -> Any:
    return Timer._base_manager.using(using).filter(status=Status.READY)


def effects(using: str) -> list[str]:
    return sorted(Effect.objects.using(using).values_list("name", flat=True))


def schedule(using: str, total: int, *, delay: float = 0, spread: float = 0) -> list[str]:
    """So many timers; returns the effects that their messages will have."""
    wanted = [OutgoingMessage(topic="test.effect", payload=n, delay=delay) for n in range(total)]
    timers.schedule_many(wanted, spread=spread, using=using)
    return sorted(f"effect {n}" for n in range(total))


def said(worker: WorkerProcess, words: str) -> int:
    return worker.log.read_text().count(words)


def test_what_the_scheduler_makes_is_run_at_once(using: str, start: Start) -> None:
    """The worker's next poll is a minute away: the scheduler beside it wakes it, on every database."""
    wanted = schedule(using, 1, delay=4)
    worker = start(using, *SELDOM, command=NAME)
    eventually(lambda: effects(using) == wanted, seconds=20)
    assert re.search("worker started.*queues=all.*scheduler started", worker.log.read_text(), re.DOTALL)


def test_sigterm_ends_both_with_0(using: str, start: Start, tmp_path: Path) -> None:
    """What runs is finished, what falls due is left, and each of them says goodbye."""
    began = tmp_path / "began"
    timers.schedule("test.slow", {"touch": str(began), "seconds": 1}, delay=0, using=using)
    schedule(using, 1, delay=600)
    worker = start(using, command=NAME)
    eventually(began.exists)
    worker.send(signal.SIGTERM)
    assert worker.wait(15) == 0
    assert messages(using).get().status == Status.DONE
    assert waiting(using).count() == 1
    assert said(worker, "scheduler stopped") == said(worker, "worker stopped") == 1
    assert not Worker._base_manager.using(using).exists()


def test_while_it_stops_nothing_is_fired(using: str, start: Start, tmp_path: Path) -> None:
    """A handler may need all of its grace; nobody would run what fell due in that time."""
    began = tmp_path / "began"
    enqueue("test.stubborn", {"touch": str(began), "listens": False}, using=using)
    worker = start(using, "--grace", "3", command=NAME)
    eventually(began.exists)
    schedule(using, 1, delay=2)
    worker.send(signal.SIGTERM)
    assert worker.wait(15) == 0
    assert waiting(using).count() == 1


def test_a_second_signal_ends_it_at_once(using: str, start: Start, tmp_path: Path) -> None:
    """The operator insists."""
    began = tmp_path / "began"
    enqueue("test.stubborn", {"touch": str(began), "listens": False}, using=using)
    worker = start(using, "--grace", "600", command=NAME)
    eventually(began.exists)
    worker.send(signal.SIGTERM)
    eventually(lambda: said(worker, "scheduler stopped") == 1)
    time.sleep(0.3)
    assert worker.alive
    worker.send(signal.SIGTERM)
    assert worker.wait(10) == 128 + signal.SIGTERM


def test_a_burst_runs_what_it_has_made(using: str, start: Start) -> None:
    """Nothing that was due is left, neither as a timer nor as a message; what is due later is."""
    wanted = schedule(using, 30)
    schedule(using, 1, delay=600)
    worker = start(using, "--burst", command=NAME)
    assert worker.wait(40) == 0
    assert effects(using) == wanted
    assert waiting(using).count() == 1


@pytest.mark.parametrize("atomic", [True, False])
def test_a_burst_runs_what_its_handlers_schedule(using: str, atomic: bool) -> None:
    """Handlers whose timers are due at once: it ends when the last of them was run. It polls too seldom to
    find them by chance."""
    ran: list[int] = []

    def work(message: Message) -> None:
        ran.append(message.payload)
        if message.payload:
            timers.schedule("test.chain", message.payload - 1, delay=0, using=using)

    timers.schedule("test.chain", 4, delay=0, using=using)
    seldom = timedelta(seconds=20)
    options = WorkerOptions(database=using, scheduler=True, burst=True, poll_max=seldom)
    began = time.monotonic()
    with handling("test.chain", work, atomic=atomic):
        run_worker_process(options)
    assert ran == [4, 3, 2, 1, 0]
    assert time.monotonic() - began < 15


def test_a_burst_looks_once_more_when_the_worker_has_done_all(using: str) -> None:
    """What was scheduled since the last look, by a handler or by one in quarantine, is not left."""
    options = SchedulerOptions(database=using, burst=True, poll_max=timedelta(seconds=60))
    woken: list[int] = []
    companion = Companion(options, wake_worker=lambda: woken.append(1), exclusive=nullcontext())
    companion.turn()
    companion.retire(time.monotonic())
    assert not companion.retired
    began = time.monotonic()
    companion.waiter.wait(20)  # it was woken for that look
    assert time.monotonic() - began < 10
    schedule(using, 1)
    companion.turn()
    companion.turn()
    assert len(woken) == 3
    companion.retire(began)
    assert not companion.retired, "the worker has not heard of what was made"
    assert companion.take_news()
    companion.retire(began)
    assert companion.retired
    schedule(using, 1)
    companion.turn()
    assert waiting(using).count() == 1
    companion.waiter.close()


def test_a_burst_does_not_end_in_the_middle_of_firing(using: str) -> None:
    """What is being made just then is neither due any more, nor a message yet."""
    companion = Companion(
        SchedulerOptions(database=using, burst=True), wake_worker=lambda: None, exclusive=nullcontext()
    )
    companion.turn()
    with companion._in_turn:
        companion.retire(0.0)
    assert not companion.retired
    companion.retire(0.0)
    assert companion.retired
    companion.waiter.close()


def test_what_was_made_before_an_error_is_told(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lane is a transaction of its own: a turn that fails may have made messages, and the next one finds
    nothing due."""

    def fail(scheduler: Scheduler) -> float:
        raise OperationalError

    companion = Companion(SchedulerOptions(database=using), wake_worker=lambda: None, exclusive=nullcontext())
    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "turn", fail)
        with pytest.raises(OperationalError):
            companion.turn()
    assert companion.take_news()
    companion.waiter.close()


def test_told_to_stop_a_burst_waits_for_no_look(using: str) -> None:
    """Its scheduler may be waiting for the database, which is away."""
    options = WorkerOptions(database=using, scheduler=True, burst=True)
    worker = SchedulingWorker(options, run_scheduler=lambda scheduler: None)
    assert not worker.finished
    worker.stop_flag.request()
    assert worker.finished
    worker.waiter.close()


def test_a_burst_fires_what_falls_due_while_a_handler_runs(using: str, start: Start, tmp_path: Path) -> None:
    """The scheduler has found nothing due before; it goes on as long as the worker does."""
    enqueue("test.slow", {"touch": str(tmp_path / "began"), "seconds": 4}, using=using)
    schedule(using, 1, delay=3)
    assert start(using, "--burst", command=NAME).wait(40) == 0
    assert effects(using) == ["effect 0", "slow"]


def test_max_messages_ends_both(using: str, start: Start) -> None:
    """Also while there is more to fire and to run."""
    schedule(using, 20)
    schedule(using, 20, delay=2, spread=600)
    worker = start(using, "--max-messages", "7", command=NAME)
    assert worker.wait(30) == 0
    assert len(effects(using)) == 7
    assert said(worker, "scheduler stopped") == 1


def test_errors_of_the_database_are_outlived(using: str, start: Start) -> None:
    """In the middle of firing, again and again: all of it is undone, and done again."""
    wanted = schedule(using, 20)
    fault = {FAILPOINTS: "handed-over:error:0.7:1"}
    worker = start(using, "--burst", command=NAME, environment=fault)
    assert worker.wait(60) == 0
    assert effects(using) == wanted
    assert said(worker, "database error"), "nothing failed: this run shows nothing"


BROKEN = """
import os, sys
import django

django.setup()
from django.core.management import execute_from_command_line
from reliable_messaging.workers import Scheduler

real, path = Scheduler.turn, {path!r}
Scheduler.turn = lambda self: 1 / 0 if os.path.exists(path) else real(self)
execute_from_command_line(["manage.py", *sys.argv[1:]])
"""


def test_a_scheduler_that_fails_takes_the_process_along(using: str, start: Start, tmp_path: Path) -> None:
    """A worker without one would look well, and nothing would fall due any more. What runs is finished; the
    exit code asks for another process."""
    began, breaks = tmp_path / "began", tmp_path / "breaks"
    enqueue("test.slow", {"touch": str(began), "seconds": 2}, using=using)
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            BROKEN.format(path=str(breaks)),
            NAME,
            f"--database={using}",
            "--poll-max=0.2",
        ],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(began.exists)
        breaks.touch()
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == TRY_AGAIN
    assert "The scheduler failed: this process ends." in errors
    assert "ZeroDivisionError" in errors
    assert messages(using).get().status == Status.DONE
    assert not Worker._base_manager.using(using).exists()


def test_called_from_another_program_it_raises(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That program's process is not ours to end."""
    monkeypatch.setattr(Scheduler, "turn", lambda self: 1 / 0)
    with pytest.raises(ReliableMessagingError, match="scheduler failed"):
        run_worker_process(WorkerOptions(database=using, scheduler=True))


def test_a_replaced_process_has_a_scheduler_again(using: str, start: Start) -> None:
    """A handler hangs, and the process takes its own place."""
    enqueue("test.hangs", {"atomic": False}, max_attempts=1, using=using)
    worker = start(using, "--lease", "2", "--poll-max", "0.2", command=NAME)
    eventually(lambda: said(worker, "worker replaced") == 1)
    schedule(using, 1)
    eventually(lambda: effects(using) == ["effect 0"])
    assert worker.alive
    assert said(worker, "scheduler stopped") == 1
    assert said(worker, "scheduler started") == 2


def test_a_quarantine_has_no_scheduler(using: str, start: Start) -> None:
    """What it runs may kill it: nothing else is to go down with it."""
    suspect = enqueue("test.effect", "suspect", using=using)
    messages(using).filter(pk=suspect.pk).update(crashes=1)
    worker = start(using, command=NAME)
    eventually(lambda: said(worker, "quarantine closed") == 1)
    assert effects(using) == ["effect suspect"]
    assert said(worker, "worker started") == 2
    assert said(worker, "scheduler started") == 1


def test_each_of_several_processes_has_one(using: str, start: Start) -> None:
    """They share what is due: each timer fires once, and each message is run once."""
    wanted = schedule(using, 60, spread=2)
    worker = start(using, "--processes", "2", "--poll-max", "0.5", command=NAME)
    eventually(lambda: effects(using) == wanted, every=0.1)
    assert said(worker, "scheduler started") == 2
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert said(worker, "scheduler stopped") == 2


def test_a_disabled_one_stands_by(using: str, start: Start) -> None:
    """With ENABLED = False it neither fires nor runs."""
    schedule(using, 1)
    worker = start(using, command=NAME, environment={"TEST_ENABLED": "0"})
    eventually(lambda: said(worker, "worker disabled") == 1)
    worker.send(signal.SIGTERM)
    assert worker.wait(10) == 0
    assert waiting(using).count() == 1


def test_it_waits_for_the_tables_of_both(tmp_path: Path) -> None:
    """Migrated so far that a worker alone could start: it waits for the timers too."""
    with manage(tmp_path, "migrate", "-v0", "reliable_messaging", "0003") as migrate:
        assert migrate.wait(timeout=60) == 0
    with manage(tmp_path, NAME, "--burst") as worker:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        assert "waiting for the database" in line
        assert Timer._meta.db_table in line
        with manage(tmp_path, "migrate", "-v0") as migrate:
            assert migrate.wait(timeout=60) == 0
        assert worker.wait(timeout=30) == 0
        assert "scheduler started" in worker.stdout.read()


def test_chunks_and_the_scheduler_take_turns_at_the_only_write_lock(using: str) -> None:
    """On SQLite, in front of it and not at it: there the scheduler would be late by seconds while there is
    much to run, and each time-out would be an error of the database."""
    if using != "default":
        return
    schedule(using, 1)
    worker = SchedulingWorker(WorkerOptions(database=using, scheduler=True), run_scheduler=_run_scheduler)
    with worker._writer:
        worker.start()
        time.sleep(0.5)
        assert waiting(using).exists()
    try:
        eventually(lambda: not waiting(using).exists())
    finally:
        assert worker.shut_down()
        worker.waiter.close()


def test_a_scheduler_that_does_not_answer_keeps_nobody_from_leaving(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be waiting for somebody's lock. It is waited for no longer than the handlers are."""
    go, waits = threading.Event(), threading.Event()

    def hang(scheduler: Scheduler) -> None:
        waits.set()
        go.wait(30)

    monkeypatch.setattr(scheduling, "MARGIN", 0.1)
    options = WorkerOptions(database=using, scheduler=True, grace=timedelta(seconds=0.5))
    worker = SchedulingWorker(options, run_scheduler=hang)
    worker.start()
    try:
        assert waits.wait(20)
        began = time.monotonic()
        assert not worker.shut_down()
        assert time.monotonic() - began < 5
    finally:
        go.set()
        worker.waiter.close()
