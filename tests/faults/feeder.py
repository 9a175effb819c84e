"""Work that keeps coming while faults happen."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from reliable_messaging.models import OutboxMessage, Status

from .oracle import Oracle
from .patience import patiently

PAUSE = 0.05


@contextmanager
def feeding(oracle: Oracle, *topics: str, backlog: int = 30, together: int = 6) -> Iterator[None]:
    """In a thread of its own: ``together`` messages every 50 ms, of each topic in turn. It waits while
    ``backlog`` of them can be claimed, so that a scenario does not end with a long queue."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def feed() -> None:
        try:
            for topic in itertools.cycle(topics):
                while _claimable(oracle.using) >= backlog and not stop.wait(PAUSE):
                    pass
                if stop.wait(PAUSE):
                    return
                oracle.produce(together, topic=topic)
        except BaseException as exc:
            errors.append(exc)
        finally:
            connections.close_all()

    thread = threading.Thread(target=feed, name="feeder")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]


def _claimable(using: str) -> int:
    """Suspects do not count: they wait for a quarantine, while a worker may have nothing to do."""
    rows = OutboxMessage._base_manager.using(using).filter(status=Status.READY, crashes=0)
    return patiently(using, rows.count)
