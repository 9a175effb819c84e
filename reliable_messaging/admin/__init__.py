"""Admin pages: see what waits, failed or died, and retry it."""

from .lease import LeaseAdmin
from .outbox import OutboxMessageAdmin
from .timer import TimerAdmin
from .worker import WorkerAdmin

__all__ = ["LeaseAdmin", "OutboxMessageAdmin", "TimerAdmin", "WorkerAdmin"]
