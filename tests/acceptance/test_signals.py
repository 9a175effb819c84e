"""Stopping workers: SIGTERM finishes what runs, releases the rest, and exits 0."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from reliable_messaging import OutgoingMessage, enqueue, enqueue_many
from reliable_messaging.models import OutboxMessage, Status, Worker
from reliable_messaging.workers.stop import ECHO
from tests.testapp.models import Effect
from tests.workers import WorkerProcess, eventually

Start = Callable[..., WorkerProcess]


def messages(using: str):  # type: ignore[no-untyped-def]
    return OutboxMessage._base_manager.using(using)


def test_sigterm_under_load_exits_0_and_charges_nothing(using: str, start: Start) -> None:
    """In the middle of 3,000 messages: exit 0 inside the grace, nothing claimed, nothing charged,
    effects and acks agree, and the worker's row is gone."""
    enqueue_many([OutgoingMessage(topic="test.effect", payload=n) for n in range(3000)], using=using)
    worker = start(using, "--grace", "20")
    eventually(lambda: messages(using).filter(status=Status.DONE).count() > 50)
    began = time.monotonic()
    worker.send(signal.SIGTERM)
    assert worker.wait(25) == 0
    assert time.monotonic() - began < 20
    statuses = dict.fromkeys(Status, 0)
    for status in messages(using).values_list("status", flat=True):
        statuses[Status(status)] += 1
    assert statuses[Status.CLAIMED] == statuses[Status.DEAD] == 0
    assert statuses[Status.DONE] == Effect.objects.using(using).count() < 3000
    assert not messages(using).exclude(failures=0, crashes=0, transient_failures=0).exists()
    assert not Worker._base_manager.using(using).exists()


def test_a_running_handler_may_finish(using: str, start: Start, tmp_path: Path) -> None:
    """What has begun is not cut off while the grace lasts."""
    began = tmp_path / "began"
    enqueue("test.slow", {"touch": str(began), "seconds": 1}, using=using)
    worker = start(using)
    eventually(began.exists)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert messages(using).get().status == Status.DONE


def test_what_has_not_begun_is_released(using: str, start: Start, tmp_path: Path) -> None:
    """Claimed, and waiting behind a slow one: after SIGTERM it goes back at once instead of being run,
    while the slow one may still finish."""
    began = tmp_path / "began"
    enqueue("test.slow", {"touch": str(began), "seconds": 5}, using=using)
    enqueue_many([OutgoingMessage(topic="test.loose", payload=n) for n in range(5)], using=using)
    worker = start(using, "--concurrency", "1")
    eventually(began.exists)
    waiting = messages(using).filter(topic="test.loose")
    eventually(lambda: waiting.filter(status=Status.CLAIMED).exists())
    worker.send(signal.SIGTERM)
    eventually(lambda: not waiting.filter(status=Status.CLAIMED).exists())
    assert messages(using).get(topic="test.slow").status == Status.CLAIMED
    assert worker.wait() == 0
    assert messages(using).get(topic="test.slow").status == Status.DONE
    assert set(waiting.values_list("status", "failures", "crashes")) == {(Status.READY, 0, 0)}
    assert waiting.filter(attempts=1).exists()


def test_a_handler_that_listens_is_told_to_stop(using: str, start: Start, tmp_path: Path) -> None:
    """message.should_stop turns true at SIGTERM; the worker leaves as soon as the handler does."""
    began = tmp_path / "began"
    enqueue("test.stubborn", {"touch": str(began), "listens": True}, using=using)
    worker = start(using, "--grace", "600")
    eventually(began.exists)
    worker.send(signal.SIGINT)
    assert worker.wait() == 0
    assert messages(using).get().status == Status.DONE


def test_what_outlives_the_grace_is_released(using: str, start: Start, tmp_path: Path) -> None:
    """A handler that never ends costs its message nothing, and the process still exits 0."""
    began = tmp_path / "began"
    enqueue("test.stubborn", {"touch": str(began), "listens": False}, using=using)
    worker = start(using, "--grace", "0.5")
    eventually(began.exists)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    row = messages(using).get()
    assert (row.status, row.failures, row.crashes, row.attempts) == (Status.READY, 0, 0, 1)


def test_a_second_signal_exits_at_once(using: str, start: Start, tmp_path: Path) -> None:
    """The operator insists: no grace any more. Its lease ends, and another worker takes over."""
    began = tmp_path / "began"
    enqueue("test.stubborn", {"touch": str(began), "listens": False}, using=using)
    worker = start(using, "--grace", "600")
    eventually(began.exists)
    worker.send(signal.SIGTERM)
    time.sleep(2 * ECHO)
    assert worker.alive
    worker.send(signal.SIGTERM)
    assert worker.wait(10) == 128 + signal.SIGTERM
    assert "Told to stop a second time" in worker.log.read_text()
    assert messages(using).get().status == Status.CLAIMED


def test_two_workers_share_the_work(using: str, start: Start) -> None:
    """Both do a good part of 200 messages that take their time, and none is done twice."""
    for _ in range(2):
        start(using, "--concurrency", "1", "--batch-size", "10", "--poll-max", "0.2")
    eventually(lambda: Worker._base_manager.using(using).count() == 2)
    enqueue_many([OutgoingMessage(topic="test.nap", payload=n) for n in range(200)], using=using)
    eventually(lambda: not messages(using).exclude(status=Status.DONE).exists(), seconds=60, every=0.1)
    shares: dict[object, int] = {}
    for worker in messages(using).values_list("claimed_by", flat=True):
        shares[worker] = shares.get(worker, 0) + 1
    assert len(shares) == 2
    assert min(shares.values()) >= 40
    assert Effect.objects.using(using).count() == 200


def test_a_long_handler_keeps_its_message_by_renewal(using: str, start: Start, tmp_path: Path) -> None:
    """Three leases long, with another worker ready to reap: still its own, run once."""
    began = tmp_path / "began"
    enqueue("test.slow", {"touch": str(began), "seconds": 3.5}, using=using)
    for _ in range(2):
        start(using, "--lease", "1", "--poll-max", "0.2")
    eventually(lambda: messages(using).get().status == Status.DONE)
    row = messages(using).get()
    assert (row.attempts, row.crashes) == (1, 0)
    assert Effect.objects.using(using).count() == 1
