"""A lease in the hands of its holder."""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from asgiref.sync import sync_to_async
from django.db import Error, connections

from .. import clock, logs
from ..exceptions import LeaseInTransaction, LeaseLost
from ..session import discard
from . import table
from .table import LeaseAnswer
from .terms import SAFE_SHARE, Terms

JITTER = 0.1
"""Renewals come up to a tenth sooner than they must, or all holders that began together would renew
together for ever."""
LONGEST_SLICE = 1.0
"""On some systems the time-outs of an Event go by the wall clock, which somebody may set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """By the database's clock."""

    expires_at: datetime
    server_time: datetime


class Lost(threading.Event):
    """Set when somebody says so, and by itself when the lease could not be renewed in time: no thread has
    to notice, so none can be too late."""

    def __init__(self, ends_at: float) -> None:
        super().__init__()
        self.ends_at = ends_at

    def is_set(self) -> bool:
        return super().is_set() or clock.monotonic() >= self.ends_at

    def wait(self, timeout: float | None = None) -> bool:
        until = None if timeout is None else clock.monotonic() + timeout
        while not self.is_set():
            left = self.ends_at - clock.monotonic()
            if until is not None:
                left = min(left, until - clock.monotonic())
                if until <= clock.monotonic():
                    return False
            super().wait(max(0.0, min(left, LONGEST_SLICE)))
        return True


class HeldLease:
    """An exclusive right, until it is released or lost. It renews itself.

    ``token`` is greater than that of every holder before. Hand it to whatever the lease protects, and
    let that refuse a smaller one than it has seen: a process that was paused does not know that its lease
    is over.
    """

    def __init__(
        self, terms: Terms, answer: LeaseAnswer, *, began: float, on_end: Callable[[HeldLease], None]
    ) -> None:
        self.name = terms.name
        self.token = answer.token
        self.owner = answer.owner
        self.using = terms.alias
        self.lost = Lost(0.0)
        """Set when the lease is lost: before it ends, if it could not be renewed; at the next renewal, if
        somebody has taken it away."""
        self._terms = terms
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._released = False
        self._on_end = on_end
        self.renew_due = 0.0
        """On the monotonic clock."""
        self._adopt(answer, began)

    @property
    def times(self) -> LeaseTimes:
        return self._times

    @property
    def expires_at(self) -> datetime:
        """When it ends unless it is renewed, by the database's clock."""
        return self._times.expires_at

    @property
    def server_time(self) -> datetime:
        """What the database's clock said at its last answer."""
        return self._times.server_time

    @property
    def is_ours(self) -> bool:
        """Neither given back, nor that of the process that this one was forked from."""
        return not self._released and self._pid == os.getpid()

    def raise_if_lost(self) -> None:
        if self.lost.is_set():
            raise LeaseLost(f"The lease {self.name!r} was lost: somebody else may hold it by now.")

    def renew(self) -> LeaseTimes:
        """Now, and not when it is time. LeaseLost when it is lost."""
        self._must_be_ours("renewed")
        self._renew()
        self.raise_if_lost()
        return self._times

    def renew_when_due(self) -> None:
        """For the keeper: an error of the database is tried again soon, as long as there is time."""
        try:
            self._renew()
        except Exception:
            self.renew_due = clock.monotonic() + self._terms.duration.total_seconds() / 20
            raise

    def release(self) -> None:
        """Let others have it at once. LeaseLost when it was no longer ours to release."""
        self._must_be_ours("released")
        try:
            released = table.release(self.using, self.name, self.token)
        except LeaseInTransaction:
            raise
        except BaseException:
            self._on_end(self)  # not renewed any more: then it ends by itself
            raise
        self._end()
        if not released:
            self.lost.set()
            self.raise_if_lost()

    def leave(self, *, quietly: bool) -> None:
        """At the end of a block. ``quietly``: an error is on its way that says more."""
        try:
            if not self._released:
                self.release()
        except LeaseLost as exc:
            if not quietly:
                raise
            logs.event(logging.WARNING, "lease lost", name=self.name, owner=self.owner, error=str(exc))
        except Error as exc:  # it ends by itself
            logs.event(logging.WARNING, "lease not released", name=self.name, error=str(exc))
            discard(connections[self.using])
        finally:
            self._end()

    async def arenew(self) -> LeaseTimes:
        return await sync_to_async(self.renew)()

    async def arelease(self) -> None:
        await sync_to_async(self.release)()

    def _end(self) -> None:
        self._released = True
        if self._pid == os.getpid():
            self._on_end(self)

    def _renew(self) -> None:
        began = clock.monotonic()
        answer = table.renew(self.using, self.name, self.token, duration=self._terms.duration)
        with self._lock:
            if answer is None or self.lost.is_set():
                # An answer that comes too late changes nothing: its holder may have stopped by now.
                self.lost.set()
                return
            self._adopt(answer, began)

    def _adopt(self, answer: LeaseAnswer, began: float) -> None:
        """Counted from before the question: the database's lease began later, and so ends later."""
        assert answer.expires_at is not None
        seconds = self._terms.duration.total_seconds()
        self._times = LeaseTimes(expires_at=answer.expires_at, server_time=answer.server_time)
        self.lost.ends_at = max(self.lost.ends_at, began + seconds * SAFE_SHARE)
        self.renew_due = began + seconds * self._terms.renew_at * random.uniform(1 - JITTER, 1)

    def _must_be_ours(self, what: str) -> None:
        if self._released:
            raise LeaseLost(f"The lease {self.name!r} cannot be {what}: it has been released.")
        if self._pid != os.getpid():
            raise LeaseLost(
                f"The lease {self.name!r} cannot be {what} here: it belongs to the process "
                f"{self._pid}, which this one was forked from."
            )
        self.raise_if_lost()

    def __repr__(self) -> str:
        state = "released" if self._released else "lost" if self.lost.is_set() else "held"
        return f"<HeldLease {self.name!r} token={self.token} {state}>"
