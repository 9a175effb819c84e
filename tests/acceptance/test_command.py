"""The command line: what it says and how it ends."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from reliable_messaging import enqueue
from reliable_messaging.models import OutboxMessage, Status
from tests.workers import ROOT, WorkerProcess, eventually

Start = Callable[..., WorkerProcess]


def test_burst_stops_when_nothing_is_due(using: str, start: Start) -> None:
    """Runs what is due, leaves what is not, exits 0."""
    enqueue("test.loose", 1, using=using)
    enqueue("test.loose", 2, delay=3600, using=using)
    assert start(using, "--burst").wait() == 0
    statuses = OutboxMessage._base_manager.using(using).order_by("payload").values_list("status", flat=True)
    assert list(statuses) == [Status.DONE, Status.READY]


def test_it_serves_the_queues_it_is_told(using: str, start: Start) -> None:
    """--queues and --exclude-queues."""
    for name in ("a", "b", "c"):
        enqueue("test.loose", name, queue=name, using=using)
    assert start(using, "--burst", "--queues", "a,b", "--exclude-queues", "b").wait() == 0
    done = OutboxMessage._base_manager.using(using).filter(status=Status.DONE)
    assert [row.queue for row in done] == ["a"]


def test_a_disabled_worker_stands_by(using: str, start: Start) -> None:
    """ENABLED = False: it says so, does nothing, and leaves on SIGTERM with 0; a burst leaves at once."""
    enqueue("test.loose", 1, using=using)
    off = {"TEST_ENABLED": "0"}
    assert start(using, "--burst", environment=off).wait() == 0
    worker = start(using, environment=off)
    eventually(lambda: worker.log.read_text().count("worker disabled") == 2)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert OutboxMessage._base_manager.using(using).get().status == Status.READY


def test_a_disabled_child_leaves_with_its_parent(django_db_setup: None, start: Start) -> None:
    """It was enabled when its parent was started. A quarantine ends at once: it counts as open, and no
    other one would be started."""
    off = {"TEST_ENABLED": "0"}
    assert start("default", "--quarantine", environment=off).wait() == 0
    child = start("default", "--supervised", environment=off, stdin=subprocess.PIPE)
    eventually(lambda: child.log.read_text().count("worker disabled") == 2)
    assert child.alive
    assert child.process.stdin is not None
    child.process.stdin.close()
    assert child.wait() == 0


@contextmanager
def manage(data: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command of the example project; it does not outlive the block, whatever is asserted there."""
    with subprocess.Popen(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "EXAMPLE_DATA_DIR": str(data),
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_it_waits_for_its_tables(tmp_path: Path) -> None:
    """Started before the migrations, as in a deployment: it says what it waits for, then starts."""
    with manage(tmp_path, "run_outbox_worker", "--burst") as worker:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        assert "waiting for the database" in line
        assert "manage.py migrate" in line
        with manage(tmp_path, "migrate", "-v0") as migrate:
            assert migrate.wait(timeout=60) == 0
        assert worker.wait(timeout=30) == 0
        assert "worker started" in worker.stdout.read()
    with closing(sqlite3.connect(tmp_path / "example.sqlite3")) as database:
        (mode,) = database.execute("PRAGMA journal_mode").fetchone()
    assert mode == "wal"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lease", "0.2"], "cannot be renewed in time"),
        (["--concurrency", "0"], "at least 1"),
        (["--batch-size", "many"], "at least 1"),
        (["--poll-max", "-1"], "negative"),
        (["--poll-min", "0"], "busy loop"),
        (["--queues", ","], "at least one queue"),
        (["--queues", "x" * 101], "100 are allowed"),
        (["--queues", "a,b", "--exclude-queues", "b,a"], "nothing left to serve"),
        (["--poll-min", "5", "--poll-max", "1"], "--poll-max 1 s"),
        (["--database", "nowhere"], "invalid choice"),
    ],
)
def test_wrong_options_are_explained(tmp_path: Path, arguments: list[str], words: str) -> None:
    """An error that names the option, before anything starts."""
    with manage(tmp_path, "run_outbox_worker", *arguments) as worker:
        output, _ = worker.communicate(timeout=30)
    assert worker.returncode not in (0, None)
    assert words in output
    assert arguments[0] in output
