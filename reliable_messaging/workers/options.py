from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from ..conf import get_settings
from ..workqueue import QueueSelection


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How one worker process works. What is not given comes from the settings."""

    database: str = "default"
    selection: QueueSelection = QueueSelection()
    concurrency: int = 4
    async_concurrency: int = 100
    """How many async handlers run at once. Each is a claim to be renewed, and often a socket."""
    batch_size: int = field(default_factory=lambda: get_settings().BATCH_SIZE)
    chunk_size: int = field(default_factory=lambda: get_settings().CHUNK_SIZE)
    lease: timedelta = field(default_factory=lambda: get_settings().LEASE)
    poll_min: timedelta = field(default_factory=lambda: get_settings().POLL_MIN)
    poll_max: timedelta = field(default_factory=lambda: get_settings().POLL_MAX)
    wakeup: bool = field(default_factory=lambda: get_settings().WAKEUP)
    """Listen for messages that are due at once, where the database can tell."""
    grace: timedelta = timedelta(seconds=30)
    burst: bool = False
    max_messages: int | None = None
    quarantine: bool = False
    """Run due suspects, one at a time, and end when there are no more."""
    supervised: bool = False
    """A parent watches over this process: stop when it lets go of standard input."""
    orphan: int | None = None
    """The process id of a quarantine that was open when this process took its own place."""
    verbosity: int = 1
    scheduler: bool = False
    """Also make messages of what is due from timers and jobs."""
