"""The process that claims, runs and settles: ``OutboxWorker`` and its parts."""

from .options import WorkerOptions
from .process import run_worker_process
from .worker import OutboxWorker

__all__ = ["OutboxWorker", "WorkerOptions", "run_worker_process"]
