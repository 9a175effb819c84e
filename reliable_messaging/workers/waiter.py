"""A sleep that can be woken: by another thread, and by a signal handler."""

from __future__ import annotations

import os
import select


class Waiter:
    """Built on a pipe, because a signal handler may not take a lock: a threading.Event set from
    one can deadlock with the very thread that it interrupted."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def wake(self) -> None:
        try:
            os.write(self._write, b"w")
        except BlockingIOError:
            pass  # full: someone woke it already, often

    def wait(self, seconds: float) -> None:
        """Return after that time, or at once when woken since the last wait."""
        select.select([self._read], [], [], max(0.0, seconds))
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)
