"""What each handler thread is busy with, and whether it is past its time."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from .. import clock
from ..conf import get_settings
from ..message import Message
from ..registry import Handler
from ..report import TRACEBACK_LENGTH, ErrorReport, FailureKind, storable

LAST_CHANCE = 2.0
"""Seconds for a handler to listen, once its time is over."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One message in the hands of its handler, until its thread is free again."""

    message: Message
    mates: Sequence[Message]
    """The members of its chunk, itself among them: they share its transaction."""
    thread: int
    timeout: float
    ends_at: float
    holds_transaction: bool
    hung: bool = False

    def report(self) -> ErrorReport:
        """Where the handler stands now, as the traceback: the first thing anyone will ask."""
        frame = sys._current_frames().get(self.thread)
        stack = "".join(traceback.format_stack(frame)[-30:]) if frame is not None else ""
        plain = ErrorReport.plain(
            "HandlerTimeout", f"its handler did not end within {self.timeout:g} s", FailureKind.OWN
        )
        return ErrorReport(
            error_class=plain.error_class,
            message=plain.message,
            traceback=storable(stack, TRACEBACK_LENGTH),
            fingerprint=plain.fingerprint,
            kind=plain.kind,
        )


class Runs:
    """Written by the handler threads, each its own entry; read by the watchdog and the claiming thread."""

    def __init__(self) -> None:
        self._running: dict[int, Run] = {}

    def begin(self, message: Message, handler: Handler | None, *, mates: Sequence[Message] = ()) -> None:
        timeout = (handler and handler.timeout) or get_settings().HANDLER_TIMEOUT
        thread = threading.get_ident()
        self._running[thread] = Run(
            message=message,
            mates=mates,
            thread=thread,
            timeout=timeout.total_seconds(),
            ends_at=clock.monotonic() + timeout.total_seconds(),
            holds_transaction=handler is not None and handler.atomic,
        )

    def end(self) -> None:
        """The thread is free: commit, hooks and cleaning up are part of a run, because they can hang too."""
        self._running.pop(threading.get_ident(), None)

    def __len__(self) -> int:
        return len(self._running)

    def newly_hung(self) -> list[Run]:
        """Those that went past their time since this was last asked."""
        now = clock.monotonic()
        found = [run for run in list(self._running.values()) if not run.hung and now > run.ends_at]
        for run in found:
            run.hung = True
        return found

    @property
    def hung(self) -> list[Run]:
        return [run for run in list(self._running.values()) if run.hung]

    @property
    def hopeless(self) -> bool:
        """Whether one was told to stop, and still has not."""
        return any(clock.monotonic() > run.ends_at + LAST_CHANCE for run in self.hung)
