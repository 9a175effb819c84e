"""Admin pages: see what waits, failed or died, and retry it."""

from .outbox import OutboxMessageAdmin
from .worker import WorkerAdmin

__all__ = ["OutboxMessageAdmin", "WorkerAdmin"]
