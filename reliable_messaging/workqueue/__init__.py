"""One work queue for every work item: claim, settle, renew, reap, expire, purge, requeue.

    ready ──claim──▶ claimed ──ack──────────────▶ done
      ▲                │ ├──── fail ────────────▶ dead
      │                │ └──── abandon ─────────▶ ready later, or dead when its budget is used up
      │                │
      ├──── release ───┤   charged to nothing
      ├──── reap ──────┘   the lease ended: one crash, or dead at MAX_CRASHES
      ├──── requeue ──── dead, expired, cancelled
      ├──── expire ────▶ expired
      └──── cancel ────▶ cancelled

A claim gives its rows a fresh owner token. Whoever settles or renews must still hold that token:
the comparison is in the WHERE of the UPDATE, so a stale worker changes nothing, and is told so.
``leased_until`` only says when others may take the row; it is never what a settlement compares.

This package is the only one that writes a status.
"""

from .horizon import Horizon
from .lane import Lane, Mark
from .operate import cancelled_from_the_start
from .queue import WorkQueue
from .selection import QueueSelection
from .settle import Acknowledged
from .settlement import Abandon, Ack, Exchange, Fail, Release, Settlement, Transition

__all__ = [
    "Abandon",
    "Ack",
    "Acknowledged",
    "Exchange",
    "Fail",
    "Horizon",
    "Lane",
    "Mark",
    "QueueSelection",
    "Release",
    "Settlement",
    "Transition",
    "WorkQueue",
    "cancelled_from_the_start",
]
