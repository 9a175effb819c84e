"""The demonstration from its first line to its last."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..processes import Children, leaving_on_signals
from . import crash, dead, job, retries, rollback, timer, together, workers
from .attempt import Step, attempt
from .finding import Finding
from .report import exit_code, table
from .scene import Scene
from .workspace import fresh_database, worker_environment

Write = Callable[[str], object]

STEPS: Sequence[tuple[str, Step]] = (
    (workers.PROMISE, workers.workers_start),
    (together.PROMISE, together.orders_and_messages_commit_together),
    (rollback.PROMISE, rollback.rolled_back_order_sends_nothing),
    (retries.PROMISE, retries.failing_message_is_retried),
    (dead.PROMISE, dead.dead_message_is_requeued),
    (crash.PROMISE, crash.killed_workers_message_is_finished),
    (timer.PROMISE, timer.timer_makes_one_message_unless_cancelled),
    (job.PROMISE, job.job_runs_once_for_each_due_time),
)

NEXT = """
Try next:
  make serve    the shop in the browser: place orders, requeue a dead message, run a job now
  make test     the tests that hold these promises, on every database that answers
  example_project/shop/services.py and handlers.py    all the code that the shop needs for it"""


def run_demo(write: Write) -> int:
    """Put each promise to the test; returns the exit code, which is not 0 if one was broken."""
    findings: list[Finding] = []
    with (
        leaving_on_signals(),
        fresh_database(keep=lambda: _has_broken(findings)) as directory,
        Children(worker_environment(directory), log_directory=directory) as children,
    ):
        scene = Scene(directory=directory, workers=children, say=_clocked(write))
        for promise, step in STEPS:
            write(f"\n{promise}")
            findings.append(attempt(promise, step, scene))
            if step is workers.workers_start and _has_broken(findings):
                break  # the others would each wait in vain
    write(f"\n{table(findings)}")
    write(f"\nKept for a look, with the workers' logs: {directory}" if _has_broken(findings) else NEXT)
    return exit_code(findings)


def _has_broken(findings: Sequence[Finding]) -> bool:
    return any(not finding.kept for finding in findings)


def _clocked(write: Write) -> Callable[[str], None]:
    began = time.monotonic()

    def say(line: str) -> None:
        write(f"  {time.monotonic() - began:5.1f} s  {line}")

    return say
