"""Async handlers in real worker processes: SIGTERM, SIGKILL, and time that is over."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reliable_messaging import OutgoingMessage, enqueue, enqueue_many
from reliable_messaging.models import Failure, OutboxMessage, Status, Worker
from tests.testapp.models import Effect
from tests.workers import WorkerProcess, eventually

Start = Callable[..., WorkerProcess]
FAST = ("--lease", "2", "--poll-max", "0.2")


def messages(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def stored(using: str, row: OutboxMessage) -> tuple[int, int, int]:
    found = messages(using).get(pk=row.pk)
    return found.status, found.failures, found.crashes


def effects(using: str, name: str) -> int:
    return int(Effect.objects.using(using).filter(name=name).count())


def test_sigterm_lets_an_async_handler_finish(using: str, start: Start, tmp_path: Path) -> None:
    """It is told to stop, comes to its end, and the worker exits with 0."""
    began = tmp_path / "began"
    row = enqueue("test.async.listening", {"touch": str(began)}, using=using)
    worker = start(using, *FAST)
    eventually(began.exists)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert stored(using, row) == (Status.DONE, 0, 0)
    assert effects(using, "told") == 1


def test_after_the_grace_it_is_cancelled_and_given_back(using: str, start: Start, tmp_path: Path) -> None:
    """Its ``finally`` runs, its message is charged with nothing, and the worker exits with 0."""
    began, ended = tmp_path / "began", tmp_path / "ended"
    row = enqueue("test.async.endless", {"touch": str(began), "ended": str(ended)}, using=using)
    worker = start(using, *FAST, "--grace", "1")
    eventually(began.exists)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert ended.exists()
    assert stored(using, row) == (Status.READY, 0, 0)


def test_a_killed_worker_costs_its_async_messages_one_crash(using: str, start: Start, tmp_path: Path) -> None:
    """Another takes over; they are suspects then, and are run in quarantine, on an event loop there."""
    began = tmp_path / "began"
    row = enqueue("test.async.listening", {"touch": str(began)}, using=using)
    first = start(using, *FAST)
    eventually(began.exists)
    first.kill()
    began.unlink()
    second = start(using, *FAST)
    eventually(began.exists, seconds=60)
    assert stored(using, row) == (Status.CLAIMED, 0, 1)
    second.send(signal.SIGTERM)
    assert second.wait() == 0
    assert stored(using, row) == (Status.DONE, 0, 1)


def test_one_that_is_cancelled_needs_no_new_process(using: str, start: Start) -> None:
    """Past its time: one failure, with where it stood, and the same worker goes on."""
    row = enqueue("test.async.late", max_attempts=1, using=using)
    worker = start(using, *FAST)
    eventually(lambda: messages(using).get(pk=row.pk).status == Status.DEAD)
    assert "be_late" in Failure._base_manager.using(using).get(item_id=row.pk).traceback
    enqueue("test.loose", "after", using=using)
    eventually(lambda: effects(using, "loose after") == 1)
    assert worker.alive
    assert stored(using, row) == (Status.DEAD, 1, 0)
    assert len(set(messages(using).values_list("claimed_by", flat=True))) == 1


@pytest.mark.parametrize("topic", ["test.async.deaf", "test.async.blocks"])
def test_one_that_ends_for_nobody_costs_the_process(using: str, start: Start, topic: str) -> None:
    """One failure for its message; the worker replaces itself, and its neighbours are done, charged with
    nothing."""
    row = enqueue(topic, max_attempts=1, using=using)
    enqueue_many([OutgoingMessage(topic="test.async.patient", payload=n) for n in range(10)], using=using)
    worker = start(using, *FAST)
    eventually(lambda: not messages(using).filter(status__lt=Status.DONE).exists(), seconds=60)
    assert worker.alive
    assert stored(using, row) == (Status.DEAD, 1, 0)
    others = messages(using).exclude(pk=row.pk)
    assert set(others.values_list("status", "failures", "crashes")) == {(Status.DONE, 0, 0)}
    assert [effects(using, f"patient {n}") for n in range(10)] == [1] * 10
    enqueue("test.async.patient", "after", using=using)
    eventually(lambda: effects(using, "patient after") == 1)
    assert len(set(messages(using).values_list("claimed_by", flat=True))) > 1
    eventually(lambda: Worker._base_manager.using(using).count() == 1)
