"""``--processes N``: a parent that starts again what died, and lets go of all when told to stop."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from reliable_messaging import OutgoingMessage, enqueue, enqueue_many
from reliable_messaging.models import OutboxMessage, Status, Worker
from tests.testapp.models import Effect
from tests.workers import WorkerProcess, eventually

Start = Callable[..., WorkerProcess]
FAST = ("--lease", "1", "--poll-max", "0.2")


def messages(using: str):  # type: ignore[no-untyped-def]
    return OutboxMessage._base_manager.using(using)


def worker_pids(using: str) -> set[int]:
    return set(Worker._base_manager.using(using).values_list("pid", flat=True))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_as_many_as_asked_for_share_the_work(using: str, start: Start) -> None:
    """Two children, each with a row of its own; nothing is done twice; SIGTERM ends all three with 0."""
    supervisor = start(using, "--processes", "2", "--concurrency", "1", "--batch-size", "10", *FAST)
    eventually(lambda: len(worker_pids(using)) == 2)
    enqueue_many([OutgoingMessage(topic="test.nap", payload=n) for n in range(100)], using=using)
    eventually(lambda: not messages(using).exclude(status=Status.DONE).exists(), every=0.1)
    assert Effect.objects.using(using).count() == 100
    assert len(set(messages(using).values_list("claimed_by", flat=True))) == 2
    pids = worker_pids(using)
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait() == 0
    assert not any(map(alive, pids))
    assert worker_pids(using) == set()


def test_a_child_that_died_is_started_again(using: str, start: Start) -> None:
    """Killed three times: three times another takes its place, and its work is finished."""
    supervisor = start(using, "--processes", "1", *FAST)
    for _ in range(3):
        eventually(lambda: any(map(alive, worker_pids(using))))
        (victim,) = filter(alive, worker_pids(using))
        os.kill(victim, signal.SIGKILL)
        eventually(lambda victim=victim: not alive(victim))  # type: ignore[misc]
    enqueue("test.loose", 1, using=using)
    eventually(lambda: messages(using).get().status == Status.DONE)
    assert supervisor.alive


def test_a_child_that_left_quietly_is_started_again(using: str, start: Start) -> None:
    """Exit code 0 without a reason to end: a handler that calls ``os._exit(0)`` costs no place."""
    supervisor = start(using, "--processes", "1", *FAST)
    eventually(lambda: any(map(alive, worker_pids(using))))
    (first,) = filter(alive, worker_pids(using))
    poison = enqueue("poison.exit-0.loose", {"number": 1}, using=using)
    eventually(lambda: not alive(first))
    enqueue("test.loose", 1, using=using)
    eventually(lambda: messages(using).exclude(pk=poison.pk).get().status == Status.DONE)
    assert supervisor.alive


def test_children_stop_when_their_parent_is_killed(using: str, start: Start) -> None:
    """Nobody is left to look after them: they finish what they run, and end."""
    supervisor = start(using, "--processes", "2", *FAST)
    eventually(lambda: len(worker_pids(using)) == 2)
    pids = worker_pids(using)
    supervisor.kill()
    eventually(lambda: not any(map(alive, pids)))
    assert worker_pids(using) == set()


def test_a_signal_to_everyone_is_one_signal(using: str, start: Start, tmp_path: Path) -> None:
    """systemd and terminals signal every process: a child that hears it twice still has its grace."""
    began = tmp_path / "began"
    enqueue("test.slow", {"touch": str(began), "seconds": 2}, using=using)
    supervisor = start(using, "--processes", "1")
    eventually(began.exists)
    (child,) = worker_pids(using)
    os.kill(child, signal.SIGTERM)
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait() == 0
    assert messages(using).get().status == Status.DONE


def test_a_second_signal_ends_all_at_once(using: str, start: Start, tmp_path: Path) -> None:
    """The operator insists: children are killed, and their leases end."""
    began = tmp_path / "began"
    enqueue("test.stubborn", {"touch": str(began), "listens": False}, using=using)
    supervisor = start(using, "--processes", "1", "--grace", "600")
    eventually(began.exists)
    (child,) = worker_pids(using)
    supervisor.send(signal.SIGTERM)
    eventually(lambda: "process" in supervisor.log.read_text())
    time.sleep(0.3)
    assert supervisor.alive
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait(10) == 128 + signal.SIGTERM
    eventually(lambda: not alive(child))


def test_a_burst_ends_when_all_have_ended(using: str, start: Start) -> None:
    """Each child stops when nothing is due; none is started again."""
    enqueue_many([OutgoingMessage(topic="test.loose", payload=n) for n in range(50)], using=using)
    supervisor = start(using, "--processes", "2", "--burst")
    assert supervisor.wait(60) == 0
    assert Effect.objects.using(using).count() == 50
    assert len(re.findall("process started", supervisor.log.read_text())) == 2
