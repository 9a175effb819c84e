"""The processes: ``OutboxWorker``, which claims, runs and settles; ``Scheduler``, which makes messages of
what is due; and their parts."""

from .options import WorkerOptions
from .process import run_scheduler_process, run_worker_process
from .scheduler import Scheduler, SchedulerOptions
from .worker import OutboxWorker

__all__ = [
    "OutboxWorker",
    "Scheduler",
    "SchedulerOptions",
    "WorkerOptions",
    "run_scheduler_process",
    "run_worker_process",
]
