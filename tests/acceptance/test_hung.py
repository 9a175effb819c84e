"""Handlers that never end and ignore everything: one failure, a new process, and the rest unharmed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reliable_messaging import OutgoingMessage, enqueue, enqueue_many
from reliable_messaging.models import Failure, OutboxMessage, Status, Worker
from tests.testapp.models import Effect
from tests.workers import WorkerProcess, eventually

Start = Callable[..., WorkerProcess]
FAST = ("--lease", "2", "--poll-max", "0.2")
ALONE: tuple[str, ...] = ()
SUPERVISED = ("--processes", "1")
BOTH = pytest.mark.parametrize("how", [ALONE, SUPERVISED], ids=["alone", "supervised"])


def messages(using: str):  # type: ignore[no-untyped-def]
    return OutboxMessage._base_manager.using(using)


@BOTH
def test_a_hung_handler_costs_one_failure_and_the_process(
    using: str, start: Start, how: tuple[str, ...]
) -> None:
    """Its message is retried later; forty others are done, charged with nothing, by two processes."""
    hung = enqueue("test.hangs", {"atomic": False}, max_attempts=1, using=using)
    enqueue_many([OutgoingMessage(topic="test.effect", payload=n) for n in range(40)], using=using)
    worker = start(using, *FAST, *how)
    eventually(lambda: not messages(using).filter(status__lt=Status.DONE).exists(), seconds=60)
    assert worker.alive
    stored = messages(using).get(pk=hung.pk)
    assert (stored.status, stored.failures, stored.crashes, stored.attempts) == (Status.DEAD, 1, 0, 1)
    assert "HandlerTimeout" in stored.last_error
    assert "hang_on" in Failure._base_manager.using(using).get(item_id=hung.pk).traceback
    others = messages(using).exclude(pk=hung.pk)
    assert set(others.values_list("status", "failures", "crashes")) == {(Status.DONE, 0, 0)}
    assert Effect.objects.using(using).count() == 40
    # The one that took over is at work too.
    enqueue("test.loose", "after", using=using)
    eventually(lambda: Effect.objects.using(using).filter(name="loose after").exists())
    assert len(set(messages(using).values_list("claimed_by", flat=True))) > 1
    eventually(lambda: Worker._base_manager.using(using).count() == 1)


@BOTH
def test_a_hung_atomic_handler(using: str, start: Start, how: tuple[str, ...]) -> None:
    """In the middle of a chunk: the members before and after it are done, once, and charged with no
    failure. Where the database has one write lock, the process goes at once and it costs a crash."""
    one_writer = using == "default"
    rows = enqueue_many(
        [
            OutgoingMessage(topic="test.hangs.atomic" if n == 3 else "test.effect", payload=n, max_attempts=1)
            for n in range(7)
        ],
        using=using,
    )
    hung = rows[3]
    limits = {"TEST_MAX_CRASHES": "2"}
    options = ("--concurrency", "1", "--chunk-size", "10")
    worker = start(using, *FAST, *options, *how, environment=limits)
    eventually(lambda: not messages(using).filter(status__lt=Status.DONE).exists(), seconds=60)
    assert worker.alive
    stored = messages(using).get(pk=hung.pk)
    wanted = (Status.DEAD, 0, 2) if one_writer else (Status.DEAD, 1, 0)
    assert (stored.status, stored.failures, stored.crashes) == wanted
    others = messages(using).exclude(pk=hung.pk)
    assert set(others.values_list("status", "failures")) == {(Status.DONE, 0)}
    if not one_writer:
        assert set(others.values_list("crashes", flat=True)) == {0}
    names = sorted(Effect.objects.using(using).values_list("name", flat=True))
    assert names == [f"effect {n}" for n in range(7) if n != 3]


def test_a_handler_that_listens_needs_no_new_process(using: str, start: Start, tmp_path: Path) -> None:
    """Past its time it is told to stop. It does, is charged one failure, and the worker goes on."""
    began = tmp_path / "began"
    row = enqueue("test.hangs.listening", {"touch": str(began)}, max_attempts=1, using=using)
    worker = start(using, *FAST)
    eventually(lambda: messages(using).get(pk=row.pk).status == Status.DEAD)
    enqueue("test.loose", "after", using=using)
    eventually(lambda: Effect.objects.using(using).filter(name="loose after").exists())
    assert worker.alive
    assert messages(using).get(pk=row.pk).failures == 1


def test_what_runs_beside_a_hung_handler_may_finish(using: str, start: Start, tmp_path: Path) -> None:
    """The process is replaced only when its other work has ended."""
    began = tmp_path / "began"
    enqueue("test.slow", {"touch": str(began), "seconds": 4}, using=using)
    enqueue("test.hangs", {"atomic": False}, max_attempts=1, using=using)
    start(using, *FAST)
    eventually(lambda: not messages(using).filter(status__lt=Status.DONE).exists())
    slow = messages(using).get(topic="test.slow")
    assert (slow.status, slow.attempts, slow.crashes) == (Status.DONE, 1, 0)
    assert Effect.objects.using(using).filter(name="slow").count() == 1
