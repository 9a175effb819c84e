"""The tables. One model for each file; all are exported here for Django."""

from .failure import Failure
from .job import Job, Misfire, Overlap
from .job_run import JobRun, RunOutcome
from .lease import Lease
from .outbox import OutboxMessage
from .timer import Timer
from .upcoming import Upcoming
from .work_item import Status, WorkItem
from .worker import Worker

__all__ = [
    "Failure",
    "Job",
    "JobRun",
    "Lease",
    "Misfire",
    "OutboxMessage",
    "Overlap",
    "RunOutcome",
    "Status",
    "Timer",
    "Upcoming",
    "WorkItem",
    "Worker",
]
