"""Hearing the NOTIFY of producers: a thread of its own, with a direct connection of its own.

A pooler in transaction mode takes the LISTEN, answers that all is well, and hands on nothing. So the
listener proves itself: the worker sends a NOTIFY the way that producers do, and it must be heard.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import connections

from .. import clock, logs
from ..session import SessionLimits, private_connection
from ..waiter import Waiter
from ..wakeup import CHANNEL, notify
from .connections import close_thread_connections
from .respite import Respite

TEST_SECONDS = 5.0
"""Within this time a NOTIFY must be heard. It takes a millisecond; a busy machine is no pooler."""
STOP_SECONDS = 1.0


class Listener:
    """Tells the worker whenever it hears something, and whenever it may have missed something."""

    def __init__(
        self,
        *,
        alias: str,
        limits: SessionLimits,
        name: str,
        on_heard: Callable[[], None],
        wake: Callable[[], None],
        channel: str = CHANNEL,
    ) -> None:
        self._alias = alias
        self._channel = channel
        self._limits = limits
        self._name = name
        """What the worker sends to test it; others take no notice."""
        self._on_heard = on_heard
        self._wake_worker = wake
        self._respite = Respite(first=0.5, longest=30.0)
        self._test_wanted = False
        self._test_rest = Respite(first=1.0, longest=30.0)
        self._test_ends = math.inf
        self._proven = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)

    def start(self) -> None:
        self._waiter = Waiter()
        self._thread.start()

    def stop(self) -> None:
        """Not waited for when it hangs: nothing depends on it."""
        self._stopping = True
        if self._thread.is_alive():
            self._wake()
            self._thread.join(timeout=STOP_SECONDS)

    def test_if_wanted(self, connection: Any) -> None:
        """For the claiming thread, whose connection takes the way of the producers."""
        if not self._test_wanted or self._test_rest.is_on:
            return
        connection.ensure_connection()
        try:
            notify(connection, self._name, channel=self._channel)
        except Exception as exc:  # the driver's own, which the loop does not know: nothing depends on this
            logs.event(logging.WARNING, "wake-up lost", error=str(exc), retry_in=self._test_rest.begin())
            return
        self._test_rest.end()
        self._test_wanted = False
        self._test_ends = clock.monotonic() + TEST_SECONDS  # it may have been heard by now
        self._wake()

    def _run(self) -> None:
        try:
            while not self._stopping:
                try:
                    self._listen()
                    return
                except Exception as exc:  # of whatever kind: polling goes on, and so does this
                    delay = self._respite.begin()
                    logs.event(logging.WARNING, "wake-up lost", error=str(exc), retry_in=delay)
                self._waiter.wait(delay)
        finally:
            close_thread_connections()
            self._waiter.close()

    def _listen(self) -> None:
        """Until told to stop, or until it has turned out to be useless."""
        with private_connection(self._alias, self._limits):
            connection = connections[self._alias]
            connection.ensure_connection()
            session: Any = connection.connection
            _execute(session, f"LISTEN {self._channel}")
            self._test_ends = math.inf
            if self._proven:
                self._on_heard()  # while nobody listened, something may have been missed
            else:
                self._test_wanted = True
            self._wake_worker()
            while not self._stopping:
                patience = math.inf if self._proven else self._test_ends - clock.monotonic()
                self._waiter.wait(patience, also=session)
                self._hear(session)
                if not self._proven and clock.monotonic() >= self._test_ends:
                    _execute(session, "UNLISTEN *")  # or the pooler's next client would get them all
                    logs.event(
                        logging.WARNING,
                        "wake-up not heard",
                        database=self._alias,
                        hint="a pooler in transaction mode? Name a direct connection: WAKEUP_DATABASE",
                    )
                    return

    def _hear(self, session: Any) -> None:
        payloads = _received(session)
        if self._name in payloads and not self._proven:
            self._proven = True
            self._respite.end()
            logs.event(logging.INFO, "wake-up heard", database=self._alias)
        if "" in payloads:
            self._respite.end()
            self._on_heard()
            self._wake_worker()

    def _wake(self) -> None:
        with suppress(OSError):  # it may be ending by itself just now
            self._waiter.wake()


def _received(session: Any) -> set[str]:
    """The payloads that have arrived, of whatever driver; an error when the session is gone."""
    if hasattr(session, "pgconn"):
        session.pgconn.consume_input()
        return {notify.extra.decode() for notify in iter(session.pgconn.notifies, None)}
    session.poll()  # psycopg2
    found = {notify.payload for notify in session.notifies}
    session.notifies.clear()
    return found


def _execute(session: Any, sql: str) -> None:
    with session.cursor() as cursor:
        cursor.execute(sql)
