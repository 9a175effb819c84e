"""Waking workers: a NOTIFY after the commit, on databases that have such a thing.

It saves waiting and promises nothing. What is not heard is found by the next poll.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from django.db import connections

from . import clock
from .conf import get_settings
from .dispatch.sessions import is_idle
from .logs import logger

CHANNEL = "reliable_messaging_outbox"
"""NOTIFY reaches one database only: so there is one channel for each outbox."""
TIMERS = "reliable_messaging_timers"
"""For schedulers: what busy producers of messages send is nothing to them."""
INTERVAL = 0.05
"""Seconds to earn one NOTIFY more: twenty a second. Each takes a lock of the whole server for a moment."""
SAVINGS = 20
"""How many may follow each other at once. Without savings every second message of a slow, uneven stream
would come too soon after the one before it, and wait for a poll."""
NOTIFY = (
    "SELECT set_config('lock_timeout', '100ms', true), set_config('synchronous_commit', 'off', true), "
    "pg_notify('%s', '%s')"
)
"""Somebody whose COMMIT waits for a standby may hold that lock for long: no caller waits for it. Nor does
this one wait for a disk or a standby while it holds the lock: there is nothing in it to be lost."""


@dataclass(slots=True)
class Allowance:
    """How often this process may send. What it withholds was preceded, less than INTERVAL before, by one
    that it sent: workers count on that."""

    _spent_until: float = field(default=0.0, init=False)
    """Each NOTIFY moves this on by INTERVAL. Threads may race here: then there is one more of them."""

    @property
    def is_spent(self) -> bool:
        return self._spent_until > clock.monotonic() + (SAVINGS - 1) * INTERVAL

    def take(self) -> bool:
        if self.is_spent:
            return False
        self._spent_until = max(self._spent_until, clock.monotonic()) + INTERVAL
        return True


_allowances: defaultdict[tuple[str, str], Allowance] = defaultdict(Allowance)
"""For each alias and channel."""


def can_wake(connection: Any) -> bool:
    """Whether its database can wake those who wait."""
    return bool(connection.vendor == "postgresql")


def wake_workers(using: str, *, channel: str = CHANNEL) -> None:
    """To be called right after a commit that made a message, or a timer, due now. It never raises, and never
    joins a transaction: a NOTIFY in it would hold that lock while the transaction commits."""
    allowance = _allowances[using, channel]
    if allowance.is_spent:
        return
    connection: Any = connections[using]
    if not (get_settings().WAKEUP and can_wake(connection) and _is_free(connection)):
        return  # and nothing is spent: workers count on what was
    if not allowance.take():
        return
    try:
        notify(connection, channel=channel)
    except Exception as exc:
        connection.errors_occurred = True  # so that Django looks at it before it is used again
        logger.debug("No worker could be woken: %s", exc)


def wake_schedulers(using: str) -> None:
    """The same for those who wait for timers and jobs."""
    wake_workers(using, channel=TIMERS)


def notify(connection: Any, payload: str = "", *, channel: str = CHANNEL) -> None:
    """By the driver's own means: it is no query of the caller's, to be counted or watched as such."""
    with connection.connection.cursor() as cursor:
        cursor.execute(NOTIFY % (channel, payload))


def _is_free(connection: Any) -> bool:
    """In no transaction, neither of Django's, which turns autocommit off for it, nor any other: a hook
    before ours may have begun one."""
    return bool(connection.autocommit and is_idle(connection))
