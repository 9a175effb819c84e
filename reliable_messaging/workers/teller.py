"""Log lines and signals of what was settled, on a thread of their own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, Full, Queue

from .. import clock, logs, tally
from ..announce import tell
from ..logs import logger
from ..workqueue import Transition
from .connections import clean_up_connections, close_thread_connections

MOST_WAITING = 100
"""Batches. When telling is slower than working, whoever settles waits for it, and slows down by that. To tell
there would run the queries of receivers in a session that is not made for them."""

A_WHILE = 1.0
PATIENCE = 5.0
"""For how long: a receiver that hangs must not stop the work. A signal is a notification, no delivery."""

Batch = tuple[str, Sequence[Transition]]


class Teller:
    """Neither a slow receiver of a signal nor a slow terminal holds up the next claim."""

    def __init__(self) -> None:
        self._batches: Queue[Batch | None] = Queue(maxsize=MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="teller", daemon=True)
        self._is_open = False
        self._patience = PATIENCE

    def start(self) -> None:
        self._is_open = True
        self._thread.start()

    def tell(self, using: str, transitions: Sequence[Transition]) -> None:
        if not self._hand_over((using, transitions)):
            tell(using, transitions)

    def close(self, *, within: float) -> None:
        """Tell what there is to tell, and end; from now on whoever settles tells."""
        if self._is_open:
            self._is_open = False
            until = clock.monotonic() + max(0.0, within)
            with suppress(Full):
                self._batches.put(None, timeout=max(0.0, within))
            self._thread.join(timeout=max(0.0, until - clock.monotonic()))

    def _hand_over(self, batch: Batch) -> bool:
        """False when nobody is there to tell it."""
        until = clock.monotonic() + self._patience
        while self._is_open and self._thread.is_alive():
            left = until - clock.monotonic()
            try:
                self._batches.put(batch, timeout=max(0.0, min(A_WHILE, left)))
            except Full:
                if left > 0:
                    continue
                self._patience = 0.0  # it hangs, as it seems: the next one is not waited for as long
                self._leave_out(batch)
                return True
            self._patience = PATIENCE
            return True
        return False

    def _leave_out(self, batch: Batch) -> None:
        logs.event(
            logging.ERROR,
            "messages not told",
            count=len(batch[1]),
            database=batch[0],
            hint="a receiver of a signal hangs, or is slower than the work",
        )

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                try:
                    tell(*batch)
                except Exception:
                    logger.exception("What was settled could not be told.")
                clean_up_connections()  # of receivers that use the database
        finally:
            tally.done.sum_up()
            close_thread_connections()

    def _next(self) -> Batch | None:
        """The next batch; and when there is none for a while, the sum of what was only counted."""
        try:
            return self._batches.get(timeout=A_WHILE if tally.done.has_more else None)
        except Empty:
            tally.done.sum_up()
            return self._batches.get()
