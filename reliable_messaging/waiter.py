"""A sleep that can be woken: by another thread, and by a signal handler."""

from __future__ import annotations

import math
import select
import socket
from typing import Protocol


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class Waiter:
    """Built on a pair of sockets, because a signal handler may not take a lock: a threading.Event
    set from one can deadlock with the very thread that it interrupted."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)

    def wake(self) -> None:
        try:
            self._write.send(b"w")
        except OSError:
            pass  # full: someone woke it already, often; or closed: nobody waits any more

    def wait(self, seconds: float, *, also: HasFileno | None = None) -> None:
        """Return after that time, or at once when woken since the last wait, or when there is something
        to read from the other one. For ever, when the time is infinite."""
        # Not select(): in a process with more than a thousand open files it would fail.
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if also is not None:
            poll.register(also.fileno(), select.POLLIN)
        poll.poll(None if seconds == math.inf else math.ceil(max(0.0, seconds) * 1000))
        try:
            while self._read.recv(4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._read.close()
        self._write.close()
