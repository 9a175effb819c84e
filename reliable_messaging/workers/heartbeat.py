"""A thread of its own, with a connection of its own: renews leases and says "alive"."""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import suppress
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connections, reset_queries, transaction

from .. import __version__, clock, logs
from ..message import Message
from ..models import Worker
from ..session import SessionLimits, discard, private_connection
from ..waiter import Waiter
from ..workqueue import WorkQueue
from .connections import close_thread_connections
from .flights import Flights
from .lost import report_lost

LONGEST_INTERVAL = 20.0


class Heartbeat:
    def __init__(
        self,
        *,
        worker_id: UUID,
        queue: WorkQueue[Message],
        flights: Flights,
        limits: SessionLimits,
        queues: list[str] | None,
    ) -> None:
        self._row = {
            "host": socket.gethostname()[:255],
            "pid": os.getpid(),
            "version": __version__,
            "queues": queues,
        }
        self._worker_id = worker_id
        self._queue = queue
        self._flights = flights
        self._lease = limits.lease
        self._limits = limits
        self._interval = min(limits.lease.total_seconds() / 3, LONGEST_INTERVAL)
        self._last_beat = clock.monotonic()
        self._beat_began: float | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        # Not an Event: on some systems its time-outs go by the wall clock. Set back by an hour, that
        # would keep the heartbeat from renewing for an hour.
        self._waiter = Waiter()
        self._thread.start()

    def stop(self) -> None:
        """End the thread; its last act is to take this worker's row away."""
        self._stopping = True
        if self._thread.is_alive():
            with suppress(OSError):  # it may be ending by itself just now
                self._waiter.wake()
            self._thread.join(timeout=5)

    @property
    def is_fresh(self) -> bool:
        """Whether leases can be kept: without it nothing new should be claimed."""
        return clock.monotonic() - self._last_beat < self._lease.total_seconds()

    @property
    def silent_for(self) -> float:
        """Seconds since it asked the database something and got neither an answer nor an error."""
        began = self._beat_began
        return 0.0 if began is None else clock.monotonic() - began

    def beat(self) -> None:
        """Renew every lease of this process and touch its row, in one transaction."""
        began = clock.monotonic()
        messages = self._flights.messages()
        with transaction.atomic(using=self._queue.alias):
            lost = self._queue.renew(messages, lease=self._lease)
            self._touch(len(messages))
        gone = self._flights.lose(lost)  # first: what is lost was not renewed
        self._flights.renewed(messages, leased_at=began)
        self._last_beat = began
        report_lost(gone)

    def _touch(self, in_flight: int) -> None:
        rows = Worker._base_manager.using(self._queue.alias)
        if not rows.filter(pk=self._worker_id).update(heartbeat_at=clock.now(), in_flight=in_flight):
            rows.create(pk=self._worker_id, in_flight=in_flight, **self._row)

    def _run(self) -> None:
        try:
            with private_connection(self._queue.alias, self._limits):
                self._beat_on()
        finally:
            close_thread_connections()
            self._waiter.close()

    def _beat_on(self) -> None:
        while not self._stopping:
            self._beat_began = clock.monotonic()
            try:
                self.beat()
                delay = self._interval
            except Exception as exc:  # of whatever kind: without renewals every claim would be lost
                delay = self._interval / 4
                logs.event(logging.ERROR, "heartbeat failed", error=str(exc), retry_in=delay)
                discard(connections[self._queue.alias])
            finally:
                self._beat_began = None
                reset_queries()  # under DEBUG Django keeps every query
            self._waiter.wait(delay)
        try:
            Worker._base_manager.using(self._queue.alias).filter(pk=self._worker_id).delete()
        except (DatabaseError, InterfaceError):
            pass  # it goes stale, and is removed by another worker
