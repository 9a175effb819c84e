"""Suspects: left alone by a worker, run one at a time in quarantine."""

from __future__ import annotations

import io
import os
import subprocess
import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections

from reliable_messaging import Message, OutgoingMessage, clock, enqueue, enqueue_many
from reliable_messaging.exceptions import ReliableMessagingError
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.workers import OutboxWorker, WorkerOptions, run_worker_process
from reliable_messaging.workers.launch import as_arguments
from reliable_messaging.workers.quarantine import LONGEST_PAUSE, Quarantine, start_quarantine
from reliable_messaging.workqueue import QueueSelection
from tests.workers import eventually, handling, run_worker

SUSPECTS = {1, 2, 3}


def rows(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def make_messages(using: str, total: int) -> None:
    enqueue_many([OutgoingMessage(topic="test.alone", payload=n) for n in range(total)], using=using)
    rows(using).filter(payload__in=[str(n) for n in SUSPECTS]).update(crashes=1)


class Child:
    """Stands in for a process."""

    def __init__(self, code: int | None = None) -> None:
        self.pid = 1
        self.code = code
        self.stdin = io.BytesIO()

    def poll(self) -> int | None:
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        if self.code is None and timeout is not None:
            raise subprocess.TimeoutExpired("child", timeout)
        return self.code or 0

    def kill(self) -> None:
        self.code = -9


def test_in_quarantine_suspects_run_one_at_a_time(using: str) -> None:
    """One after the other, however many threads there are; nothing else is touched, and it ends."""
    make_messages(using, 10)
    lock = threading.Lock()
    running: set[int] = set()
    company: Counter[int] = Counter()

    def work(message: Message) -> None:
        with lock:
            running.add(message.payload)
            company[message.payload] = len(running)
        threading.Event().wait(0.03)
        with lock:
            running.remove(message.payload)

    with handling("test.alone", work, atomic=False):
        run_worker(using, quarantine=True, concurrency=3, burst=False)
    assert company == dict.fromkeys(SUSPECTS, 1)
    assert rows(using).filter(status=Status.READY, attempts=0).count() == 7


def test_a_worker_opens_the_quarantine_and_goes_on(using: str) -> None:
    """It runs what is not a suspect, leaves the suspects alone, and starts one child for all of them."""
    make_messages(using, 10)
    started: list[Child] = []

    def start() -> Any:
        started.append(Child())
        return started[-1]

    done: list[int] = []
    worker = OutboxWorker(WorkerOptions(database=using), quarantine=Quarantine(start))
    worker.start()
    try:
        with handling("test.alone", lambda message: done.append(message.payload), atomic=False):
            while len(done) < 7 or len(worker.flights):
                worker.waiter.wait(worker.turn())
            for _ in range(3):
                worker.waiter.wait(worker.turn())
        started[0].code = 0
    finally:
        worker.shut_down()
        worker.waiter.close()
    assert sorted(done) == [n for n in range(10) if n not in SUSPECTS]
    assert rows(using).filter(crashes=1, attempts=0).count() == 3
    assert len(started) == 1


def test_a_burst_ends_after_its_quarantine(using: str) -> None:
    """With a suspect due it does not end before the child has, and looks once more what that has left."""
    enqueue("test.suspect", using=using)
    rows(using).update(crashes=1)
    child = Child()

    def start() -> Any:
        rows(using).update(due_at=rows(using).get().due_at.replace(year=2900))  # the child has it
        enqueue("test.left", using=using)  # and its handler leaves this behind
        return child

    left: list[Message] = []
    with handling("test.left", left.append, atomic=False):
        options = WorkerOptions(database=using, burst=True, poll_max=timedelta(seconds=0.2))
        worker = OutboxWorker(options, quarantine=Quarantine(start))
        worker.start()
        try:
            while not left:
                worker.waiter.wait(worker.turn())
            for _ in range(3):
                worker.waiter.wait(worker.turn())
                assert not worker.finished
            child.code = 0
            while not worker.finished:
                worker.waiter.wait(worker.turn())
        finally:
            worker.shut_down()
            worker.waiter.close()
    assert len(left) == 1


def test_a_child_that_dies_is_not_started_again_at_once() -> None:
    """One that cannot even start must not become a busy loop; a good one makes the next come at once."""
    started: list[Child] = []

    def start() -> Any:
        started.append(Child(code=1 if len(started) < 1 else 0))
        return started[-1]

    quarantine = Quarantine(start)
    quarantine.open()
    quarantine.open()
    assert len(started) == 1
    quarantine._again_at = 0.0
    quarantine.open()
    quarantine.open()
    assert len(started) == 3


def test_no_process_to_be_had_stops_nothing() -> None:
    """The system has no room for a child: the suspects wait, and the worker goes on, without trying
    again at every turn."""
    tries: list[int] = []

    def start() -> Any:
        tries.append(1)
        raise BlockingIOError("no process to be had")

    quarantine = Quarantine(start)
    for _ in range(3):
        quarantine.open()
    assert not quarantine.is_open
    assert len(tries) == 1


def test_pauses_after_deaths_grow_and_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suspect that kills its child each time costs a process now and then, not all the time."""
    now = 1000.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    quarantine = Quarantine(lambda: Child(code=1))  # type: ignore[arg-type, return-value]
    pauses = []
    for _ in range(7):
        quarantine.open()
        assert not quarantine.is_open
        pauses.append(quarantine._again_at - now)
        now = quarantine._again_at
    assert pauses == [0.5, 1, 2, 4, 8, LONGEST_PAUSE, LONGEST_PAUSE]


def test_a_child_that_does_not_end_in_time_is_ended() -> None:
    """The grace is over: the worker must not stay for the sake of a suspect."""
    child = Child()
    quarantine = Quarantine(lambda: child)  # type: ignore[arg-type, return-value]
    quarantine.open()
    quarantine.close(within=0)
    assert child.code == -9
    assert child.stdin.closed


def test_one_child_at_a_time() -> None:
    """However many suspects are due, and however often that is seen."""
    started: list[Child] = []

    def start() -> Any:
        started.append(Child())
        return started[-1]

    quarantine = Quarantine(start)
    for _ in range(3):
        quarantine.open()
    assert len(started) == 1


def test_the_child_runs_suspects_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, no chunks, no limit of its parent's; the queues are its parent's."""
    given: list[WorkerOptions] = []
    monkeypatch.setattr("reliable_messaging.workers.quarantine.start_child", given.append)
    selection = QueueSelection(only=("mail",))
    start_quarantine(WorkerOptions(selection=selection, burst=True, max_messages=1, concurrency=4))
    (options,) = given
    assert (options.quarantine, options.concurrency, options.chunk_size) == (True, 1, 1)
    assert (options.burst, options.max_messages, options.selection) == (False, None, selection)


def test_without_a_child_to_be_had_the_worker_runs_suspects_itself(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database in memory, or settings without a module: after all else, one at a time."""
    monkeypatch.setattr("reliable_messaging.workers.worker.can_start_child", lambda alias: False)
    make_messages(using, 10)
    order: list[int] = []
    with handling("test.alone", lambda message: order.append(message.payload), atomic=False):
        run_worker(using)
    assert sorted(order) == list(range(10))
    assert set(order[-3:]) == SUSPECTS


def test_a_child_works_on_the_database_of_its_parent(using: str) -> None:
    """Also when the settings name another one, as they do in a test."""
    name = connections[using].settings_dict["NAME"]
    assert f"--database-name={name}" in as_arguments(WorkerOptions(database=using))


def test_a_hung_handler_stops_a_worker_in_another_program(using: str) -> None:
    """Called from a test, the process is not the worker's to replace: it says so, and charges the message."""
    go = threading.Event()
    enqueue("test.hung", max_attempts=1, using=using)
    with handling("test.hung", lambda message: go.wait(30), atomic=False, timeout=timedelta(seconds=0.3)):
        with pytest.raises(ReliableMessagingError, match="past its time"):
            run_worker_process(WorkerOptions(database=using, burst=True))
        go.set()
    stored = rows(using).get()
    assert (stored.status, stored.failures) == (Status.DEAD, 1)


def test_the_child_of_a_process_that_took_its_own_place_is_not_forgotten() -> None:
    """It counts as open while it works, so that there is one at a time; then nothing is left of it."""
    orphan = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert orphan.stdin is not None
    quarantine = Quarantine(Child, orphan=orphan.pid)  # type: ignore[arg-type]
    quarantine.open()
    assert quarantine.is_open
    assert quarantine.pid == orphan.pid
    orphan.stdin.close()
    eventually(lambda: not quarantine.is_open)
    with pytest.raises(ChildProcessError):
        os.waitpid(orphan.pid, os.WNOHANG)
    orphan.returncode = 0
    quarantine.open()
    assert (quarantine.is_open, quarantine.pid) == (True, 1)


def test_an_orphan_that_is_nobodys_child_is_forgotten() -> None:
    """Its number may belong to another process by now."""
    assert not Quarantine(Child, orphan=os.getppid()).is_open  # type: ignore[arg-type]
