"""Starting the program again, with the same options."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class

from reliable_messaging.management.commands import run_outbox_worker
from reliable_messaging.workers import WorkerOptions, launch
from reliable_messaging.workqueue import QueueSelection

OPTIONS = [
    WorkerOptions(),
    WorkerOptions(
        database="default",
        selection=QueueSelection(only=("a", "b"), exclude=("c",)),
        concurrency=7,
        batch_size=8,
        chunk_size=9,
        lease=timedelta(seconds=1.5),
        poll_min=timedelta(microseconds=250),
        poll_max=timedelta(seconds=2),
        grace=timedelta(0),
        burst=True,
        max_messages=11,
        quarantine=True,
        supervised=True,
        orphan=4711,
        wakeup=False,
        verbosity=0,
    ),
    WorkerOptions(scheduler=True, concurrency=2),
]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_command_line_makes_the_same_options_again(
    options: WorkerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a child or a successor gets is what its parent or predecessor had, to the last one."""
    got: list[WorkerOptions] = []
    monkeypatch.setattr(run_outbox_worker, "run_worker_process", lambda o, processes: got.append(o))
    command_line = launch.command_line(options)
    name, *arguments = command_line[len(launch.program()) :]
    command = load_command_class(get_commands()[name], name)
    monkeypatch.setattr(command, "_called_from_command_line", True, raising=False)
    command.run_from_argv(["manage.py", name, *arguments])
    assert got == [options]


def test_a_quarantine_is_started_without_a_scheduler() -> None:
    """What runs there may kill its process: it is to kill nothing else."""
    command_line = launch.command_line(WorkerOptions(scheduler=True, quarantine=True))
    assert launch.COMMAND in command_line
    assert launch.WITH_SCHEDULER not in command_line


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (
            ["python", "-W", "error", "manage.py", "run_outbox_worker", "--burst"],
            ["-W", "error", "manage.py"],
        ),
        (["python3", "-m", "django", "run_outbox_worker"], ["-m", "django"]),
        (["python", "manage.py", "run_worker", "--queues", "run_outbox_worker"], ["manage.py"]),
        (["python", "/venv/bin/pytest", "tests"], ["-m", "django"]),
    ],
)
def test_the_program_is_the_one_that_was_started(
    argv: list[str], wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """manage.py with the interpreter's options; for a caller of call_command(), Django's own."""
    monkeypatch.setattr(sys, "orig_argv", argv)
    assert launch.program() == [sys.executable, *wanted]


ENVIRONMENT = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "TEST_DATABASES": "sqlite"}
SET_UP = """
import os, signal, sys
import django

django.setup()
from reliable_messaging.workers import WorkerOptions, launch

launch.is_own_process = lambda: True
"""
REPLACED = """
os.dup2(1, 50, inheritable=True)
signal.setitimer(signal.ITIMER_REAL, 300)
launch.program = lambda: [sys.executable, "-c", {successor!r}]
launch.leave(WorkerOptions())
"""


def said_by_successor(successor: str) -> list[str]:
    """The words that a process prints that takes the place of another."""
    arguments = [sys.executable, "-c", SET_UP + REPLACED.format(successor=successor)]
    ran = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, env=ENVIRONMENT, timeout=60)
    return ran.stdout.decode().split()


def test_a_replaced_process_hands_no_file_on() -> None:
    """A session that outlived its worker would keep the rows that it has locked from everybody. What
    is standard stays: a supervisor holds the other end of standard input."""
    left = set(said_by_successor("import os; print(*os.listdir('/dev/fd'))"))
    assert "50" not in left
    assert {"0", "1", "2"} <= left


def test_a_replaced_process_hands_no_alarm_on() -> None:
    """It would go off in the successor, who knows nothing of it."""
    assert said_by_successor("import signal; print(*signal.getitimer(signal.ITIMER_REAL))") == ["0.0", "0.0"]


BARRED = """
launch.program = lambda: ["there is no such program"]
{before}
launch.leave(WorkerOptions())
"""


@pytest.mark.parametrize("before", ["", "sys.stdout = sys.stderr = None"])
def test_a_process_that_cannot_be_replaced_ends(before: str) -> None:
    """A deployment has taken its interpreter away: to stay, without a watchdog, would be worse. It asks
    whoever started it for another one."""
    arguments = [sys.executable, "-c", SET_UP + BARRED.format(before=before)]
    ran = subprocess.run(arguments, check=False, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=60)
    assert ran.returncode == launch.TRY_AGAIN


def test_last_words_that_nobody_reads_keep_no_process_alive() -> None:
    """A log handler may hang on a full pipe; the process ends all the same."""
    code = "launch.end_soon(9); import time; time.sleep(60)"
    ran = subprocess.run([sys.executable, "-c", SET_UP + code], check=False, env=ENVIRONMENT, timeout=60)
    assert ran.returncode == 9


def test_a_child_starts_where_its_parent_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """manage.py is named relative to that; a handler may have gone elsewhere."""
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(launch.subprocess, "Popen", lambda arguments, **options: given.append(options))
    started_in = Path.cwd()
    monkeypatch.chdir(tmp_path)
    launch.start_child(WorkerOptions())
    assert given[0]["cwd"] == str(started_in)


@pytest.mark.parametrize("option", [["--pythonpath=../apps"], ["--pythonpath", "../apps"]])
def test_a_child_finds_the_same_modules(option: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By Django's option, and not by a variable: that would reach the programs that handlers start."""
    monkeypatch.setattr(sys, "orig_argv", ["python", "manage.py", launch.COMMAND, *option, "--burst"])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert "--pythonpath=../apps" in launch.as_arguments(WorkerOptions())
    assert "PYTHONPATH" not in launch.environment()
    monkeypatch.setattr(sys, "orig_argv", ["python", "manage.py", launch.COMMAND])
    assert not any("pythonpath" in argument for argument in launch.as_arguments(WorkerOptions()))
