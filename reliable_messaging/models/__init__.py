"""The tables. One model for each file; all are exported here for Django."""

from .failure import Failure
from .outbox import OutboxMessage
from .work_item import Status, WorkItem
from .worker import Worker

__all__ = ["Failure", "OutboxMessage", "Status", "WorkItem", "Worker"]
