"""A worker as a process: waits for its tables, loops until told to stop, leaves tidily."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import NoReturn

from django.db import DatabaseError, InterfaceError, connections, reset_queries
from django.db.models import Model

from .. import logs
from ..conf import get_settings
from ..exceptions import ReliableMessagingError
from ..models import Job, JobRun, OutboxMessage, Timer, Worker
from ..session import discard, private_connection
from ..waiter import Waiter
from .frozen import ending_when_frozen
from .launch import TRY_AGAIN, can_start_child, end, is_own_process, leave
from .lifeline import stop_when_parent_lets_go
from .options import WorkerOptions
from .scheduler import Scheduler, SchedulerOptions
from .scheduling import SchedulingWorker
from .stop import StopFlag, stopping_on_signals
from .supervisor import supervise
from .worker import OutboxWorker

RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
"""While the database is away: no busy loop, and back within seconds."""
WORKER_TABLES = (OutboxMessage, Worker)
SCHEDULER_TABLES = (Timer, Job, JobRun, OutboxMessage)


def run_worker_process(options: WorkerOptions, *, processes: int | None = None) -> None:
    """Be a worker, or the supervisor of that many; returns when told to stop, or when all is done."""
    _refuse_in_transaction(options.database)
    if not get_settings().ENABLED:
        _stand_by(ends=options.burst or options.quarantine, supervised=options.supervised)
        return
    if processes is None:
        _work(options)
        return
    if not can_start_child(options.database):
        raise ReliableMessagingError(
            "Several processes need settings in a module (DJANGO_SETTINGS_MODULE), and a database that is "
            "not in memory: a new process could not find them."
        )
    supervise(options, processes=processes)


def run_scheduler_process(options: SchedulerOptions) -> None:
    """Be a scheduler; returns when told to stop, or when nothing is due in a burst."""
    _refuse_in_transaction(options.database)
    if not get_settings().ENABLED:
        _stand_by(ends=options.burst)
        return
    scheduler = Scheduler(options)
    try:
        with (
            stopping_on_signals(scheduler.stop_flag),
            private_connection(options.database, scheduler.session_limits),
        ):
            if _wait_for_tables(SCHEDULER_TABLES, options.database, scheduler.stop_flag, scheduler.waiter):
                _run_scheduler(scheduler)
    finally:
        scheduler.waiter.close()


def _run_scheduler(scheduler: Scheduler) -> None:
    alias = scheduler.options.database
    logs.event(logging.INFO, "scheduler started", id=scheduler.id, pid=os.getpid(), database=alias)
    scheduler.start()
    try:
        loop(scheduler.turn, until=lambda: scheduler.finished, waiter=scheduler.waiter, alias=alias)
    finally:
        scheduler.stop()
    logs.event(logging.INFO, "scheduler stopped", id=scheduler.id, fired=scheduler.fired)


def _refuse_in_transaction(alias: str) -> None:
    if connections[alias].in_atomic_block:
        raise ReliableMessagingError(
            "A worker was started inside transaction.atomic(), perhaps by a TestCase: its threads could "
            "not see what that transaction wrote. Use a TransactionTestCase, or "
            "reliable_messaging.testing.run_due()."
        )


def _work(options: WorkerOptions) -> None:
    worker = (
        SchedulingWorker(options, run_scheduler=_run_scheduler)
        if options.scheduler
        else OutboxWorker(options)
    )
    try:
        _run(worker)
    finally:
        worker.waiter.close()


def _run(worker: OutboxWorker) -> None:
    options = worker.options
    if options.supervised:
        stop_when_parent_lets_go(worker.stop_flag)
    with (
        stopping_on_signals(worker.stop_flag, at_once=worker.abort),
        ending_when_frozen(options.lease),
        private_connection(options.database, worker.session_limits),
    ):
        needed = (*WORKER_TABLES, *(SCHEDULER_TABLES if options.scheduler else ()))
        if not _wait_for_tables(needed, options.database, worker.stop_flag, worker.waiter):
            return
        logs.event(
            logging.INFO,
            "worker started",
            id=worker.id,
            pid=os.getpid(),
            database=options.database,
            queues=str(options.selection),
        )
        worker.start()
        replace = False
        try:
            loop(worker.turn, until=lambda: worker.finished, waiter=worker.waiter, alias=options.database)
            replace = worker.must_be_replaced  # before shutting down: the handler might come back just then
        finally:
            ended = worker.shut_down()
        logs.event(
            logging.INFO, "worker stopped", id=worker.id, claimed=worker.claimed, released=worker.released
        )
        if replace and not worker.stop_flag.requested:
            _replace(worker)
    if isinstance(worker, SchedulingWorker) and worker.lost_scheduler:
        _ask_for_another()
    if not ended and is_own_process():
        # A handler outlived the grace. Its message is released; its thread cannot be ended, and
        # would hold up the interpreter's exit.
        end(0)


def _replace(worker: OutboxWorker) -> None:
    if not is_own_process():
        raise ReliableMessagingError(
            "A handler is past its time and cannot be ended. In a process of its own the worker would "
            "replace itself now; called from another program, it can only stop. Its message was charged a "
            "failure."
        )
    logs.event(logging.WARNING, "worker replaced", id=worker.id, reason="a handler hangs")
    leave(worker.remaining_options)


def _ask_for_another() -> NoReturn:
    """Not in its own place: what fails in the same way each time would be a busy loop."""
    if not is_own_process():
        raise ReliableMessagingError(
            "The scheduler failed, and the worker beside it was stopped: the log has the traceback."
        )
    end(TRY_AGAIN)


def loop(turn: Callable[[], float], *, until: Callable[[], bool], waiter: Waiter, alias: str) -> None:
    """Take turns. The loop knows nothing of messages; a turn says how long to wait for the next."""
    errors = 0
    while not until():
        try:
            delay = turn()
            errors = 0
            reset_queries()  # under DEBUG Django keeps every query
        except (DatabaseError, InterfaceError) as exc:
            delay = RETRY_SECONDS[min(errors, len(RETRY_SECONDS) - 1)]
            errors += 1
            logs.event(logging.ERROR, "database error", error=str(exc), database=alias, retry_in=delay)
            discard(connections[alias])
        if delay and not until():
            waiter.wait(delay)


def _wait_for_tables(models: Iterable[type[Model]], alias: str, stop: StopFlag, waiter: Waiter) -> bool:
    """Until the migrations have run; False when told to stop before."""
    needed = {model._meta.db_table for model in models}
    told = False
    while not stop.requested:
        try:
            missing = needed - set(connections[alias].introspection.table_names())
            problem = f"tables are missing: {', '.join(sorted(missing))}" if missing else ""
            hint = "manage.py migrate"
        except (DatabaseError, InterfaceError) as exc:
            discard(connections[alias])
            problem, hint = str(exc), "does the server run, and is DATABASES right?"
        if not problem:
            return True
        if not told:
            logs.event(
                logging.WARNING,
                "waiting for the database",
                database=alias,
                reason=problem,
                hint=hint,
            )
            told = True
        waiter.wait(1.0)
    return False


def _stand_by(*, ends: bool, supervised: bool = False) -> None:
    """Disabled by a setting. Staying keeps a supervisor from starting this again and again."""
    logs.event(logging.WARNING, "worker disabled", reason="RELIABLE_MESSAGING['ENABLED'] is False")
    if ends:
        return
    waiter = Waiter()
    stop = StopFlag(waiter.wake)
    if supervised:
        stop_when_parent_lets_go(stop)
    with stopping_on_signals(stop):
        while not stop.requested:
            waiter.wait(60)
    waiter.close()
