"""The tables. One model for each file; all are exported here for Django."""

from .failure import Failure
from .lease import Lease
from .outbox import OutboxMessage
from .timer import Timer
from .work_item import Status, WorkItem
from .worker import Worker

__all__ = ["Failure", "Lease", "OutboxMessage", "Status", "Timer", "WorkItem", "Worker"]
