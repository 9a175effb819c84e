"""A worker's log lines on its terminal."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

FORMAT = "%(asctime)s %(levelname)-7s %(message)s"


class Terminal(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes the lines of a whole batch at once: a system call for each of them would cost more than
    it costs to run a message."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_QuickFormatter(FORMAT))
        self._thread = threading.local()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Keep this thread's lines until the end of the block."""
        kept: list[logging.LogRecord] = []
        self._thread.kept = kept
        try:
            yield
        finally:
            self._thread.kept = None
            if kept:
                self._write(kept)

    def emit(self, record: logging.LogRecord) -> None:
        kept = getattr(self._thread, "kept", None)
        if kept is None:
            super().emit(record)
        else:
            kept.append(record)

    def _write(self, records: list[logging.LogRecord]) -> None:
        self.acquire()
        try:
            self.stream.write("".join([self.format(record) + self.terminator for record in records]))
            self.flush()
        except Exception:
            self.handleError(records[-1])
        finally:
            self.release()


class _QuickFormatter(logging.Formatter):
    """Works out the time of day once a second."""

    _second: tuple[int, str] = (0, "")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        second, text = self._second
        if second != int(record.created):
            second = int(record.created)
            text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
            self._second = second, text
        return f"{text},{int(record.msecs):03d}"


terminal = Terminal()
