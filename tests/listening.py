"""For tests of the wake-up: a worker that runs in a thread, and an ear of one's own on the channel."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connections

from reliable_messaging.session import private_connection
from reliable_messaging.wakeup import CHANNEL
from reliable_messaging.workers import OutboxWorker, WorkerOptions
from reliable_messaging.workers.process import loop

SELDOM = timedelta(minutes=5)
"""Between two polls of a worker whose messages only a wake-up can bring in time."""


@contextmanager
def working(using: str, **options: Any) -> Iterator[OutboxWorker]:
    """A worker that polls so seldom that no test waits for it, with its first look behind it."""
    given = {"poll_min": SELDOM, "poll_max": SELDOM, "grace": timedelta(seconds=5), **options}
    worker = OutboxWorker(WorkerOptions(database=using, **given))
    looked = threading.Event()

    def turn() -> float:
        delay = worker.turn()
        looked.set()
        return delay

    def work() -> None:
        try:
            with private_connection(using, worker.session_limits):
                worker.start()
                loop(turn, until=lambda: worker.finished, waiter=worker.waiter, alias=using)
                worker.shut_down()
        finally:
            connections.close_all()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        assert looked.wait(30)
        yield worker
    finally:
        worker.stop_flag.request()
        thread.join(30)
        assert not thread.is_alive()
        worker.waiter.close()


class Ear:
    """A session that listens; nothing of the worker's is in it."""

    def __init__(self, using: str) -> None:
        given = connections[using].copy()
        given.settings_dict["OPTIONS"].pop("pool", None)
        given.ensure_connection()
        self._connection = given
        self._session: Any = given.connection
        self._session.execute(f"LISTEN {CHANNEL}")

    def heard(self) -> int:
        """How many since it was last asked. A NOTIFY of its own comes last: by then the others are here."""
        self._session.execute(f"NOTIFY {CHANNEL}, 'last'")
        payloads: list[str] = []
        deadline = time.monotonic() + 10
        while "last" not in payloads:
            assert time.monotonic() < deadline
            payloads += [notify.payload for notify in self._session.notifies(timeout=0.05, stop_after=1)]
        return payloads.count("")

    def close(self) -> None:
        self._connection.close()
