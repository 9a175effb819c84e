"""Log lines and signals of what was settled, on a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from .. import tally
from ..announce import tell
from ..logs import logger
from ..workqueue import Transition
from .connections import clean_up_connections, close_thread_connections

MOST_WAITING = 100
"""Batches. When telling is slower than working, whoever settles tells as well, and slows down by that."""

A_WHILE = 1.0

Batch = tuple[str, Sequence[Transition]]


class Teller:
    """Neither a slow receiver of a signal nor a slow terminal holds up the next claim."""

    def __init__(self) -> None:
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="teller", daemon=True)
        self._is_open = False

    def start(self) -> None:
        self._is_open = True
        self._thread.start()

    def tell(self, using: str, transitions: Sequence[Transition]) -> None:
        if self._is_open and self._batches.qsize() < MOST_WAITING:
            self._batches.put((using, transitions))
        else:
            tell(using, transitions)

    def close(self, *, within: float) -> None:
        """Tell what there is to tell, and end; from now on whoever settles tells."""
        if self._is_open:
            self._is_open = False
            self._batches.put(None)
            self._thread.join(timeout=max(0.0, within))

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
