"""Admin pages: see what waits, failed or died, and retry it; write jobs."""

from .job import JobAdmin
from .job_run import JobRunAdmin
from .lease import LeaseAdmin
from .outbox import OutboxMessageAdmin
from .timer import TimerAdmin
from .worker import WorkerAdmin

__all__ = ["JobAdmin", "JobRunAdmin", "LeaseAdmin", "OutboxMessageAdmin", "TimerAdmin", "WorkerAdmin"]
