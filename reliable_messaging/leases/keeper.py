"""One thread for each database renews all leases that this process holds there."""

from __future__ import annotations

import logging
import os
import threading
from datetime import timedelta
from typing import Any

from django.db import connections, reset_queries

from .. import clock, logs
from ..session import SessionLimits, discard, private_connection
from ..waiter import Waiter
from .held import HeldLease

PATIENCE = timedelta(seconds=10)
"""With a database that does not answer. A proxy that swallows packets may keep a call for ever, and the
thread with it: then the next lease gets a new thread."""
LINGER = 5.0
"""Between one lease and the next: a thread for each would cost more than the lease."""
LIMITS = SessionLimits(lease=PATIENCE, idle_in_transaction=PATIENCE, lock=PATIENCE / 4, read=PATIENCE / 2)


class Keeper:
    """Its thread lives as long as there is something to renew, and has a connection of its own from the
    first renewal on: whoever holds a lease may be busy, or inside a transaction."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._held: list[HeldLease] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._waiter: Waiter | None = None
        self._session: Any = None
        self._renewal_began: float | None = None

    @property
    def is_stuck(self) -> bool:
        began = self._renewal_began
        return began is not None and clock.monotonic() - began > PATIENCE.total_seconds()

    @property
    def has_session(self) -> bool:
        return self._session is not None and self._session.connection is not None

    def keep(self, held: HeldLease) -> None:
        with self._lock:
            if self._thread is None or self._waiter is None or not self._thread.is_alive():
                self._begin()
            else:
                self._waiter.wake()
            self._held.append(held)  # at last: without a thread there is nothing to keep it

    def _begin(self) -> None:
        waiter = Waiter()
        thread = threading.Thread(target=self._run, args=(waiter,), name=f"leases-{self._alias}", daemon=True)
        try:
            thread.start()
        except BaseException:
            waiter.close()
            raise
        self._thread, self._waiter = thread, waiter

    def drop(self, held: HeldLease) -> None:
        with self._lock:
            self._held = [other for other in self._held if other is not held]
            if not self._held and self._waiter is not None:
                self._waiter.wake()

    def _run(self, waiter: Waiter) -> None:
        with private_connection(self._alias, LIMITS):
            self._session = connections[self._alias]
            while True:
                held = self._next()
                if held is None:
                    discard(self._session)  # or nobody could drop the database, as tests do
                    waiter.wait(LINGER)
                    if self._ends():
                        break
                elif (pause := held.renew_due - clock.monotonic()) > 0:
                    waiter.wait(pause)
                else:
                    self._renew(held)
        waiter.close()

    def _next(self) -> HeldLease | None:
        """Whichever is to be renewed first."""
        with self._lock:
            lost = [held for held in self._held if held.lost.is_set()]
            self._held = [held for held in self._held if held not in lost]
            first = min(self._held, key=lambda held: held.renew_due, default=None)
        for held in lost:
            logs.event(logging.ERROR, "lease lost", name=held.name, owner=held.owner, token=held.token)
        return first

    def _ends(self) -> bool:
        with self._lock:
            if self._held:
                return False
            self._thread = self._waiter = None
            return True

    def _renew(self, held: HeldLease) -> None:
        self._renewal_began = clock.monotonic()
        try:
            held.renew_when_due()
        except Exception as exc:  # of whatever kind: the other leases are to be renewed all the same
            logs.event(logging.ERROR, "lease not renewed", name=held.name, error=str(exc))
            discard(self._session)
        finally:
            self._renewal_began = None
            reset_queries()  # under DEBUG Django keeps every query


_keepers: dict[str, Keeper] = {}
_lock = threading.Lock()


def keeper_of(alias: str) -> Keeper:
    with _lock:
        keeper = _keepers.get(alias)
        if keeper is None or keeper.is_stuck:
            keeper = _keepers[alias] = Keeper(alias)
        return keeper


def _forget() -> None:
    """Threads do not live on in a child process; nor is a lock let go there that one of them held."""
    global _lock
    _lock = threading.Lock()
    _keepers.clear()


os.register_at_fork(after_in_child=_forget)
