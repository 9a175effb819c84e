"""What each handler is busy with, and whether it is past its time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .. import clock
from ..conf import get_settings
from ..message import Message
from ..registry import Handler
from ..report import TRACEBACK_LENGTH, ErrorReport, FailureKind, storable
from .stacks import thread_stack

LAST_CHANCE = 2.0
"""Seconds for a handler to listen, once its time is over."""
HELD_UP = 1.0
"""Seconds more for a coroutine that could not go on, because another did not let go of their event loop."""


class Host(Protocol):
    """What an async handler runs on: it has no thread of its own."""

    def stack(self) -> str: ...

    def cancel(self) -> None:
        """Ask it to end; from any thread."""

    @property
    def is_running(self) -> bool:
        """Whether it is the one that its event loop is busy with."""

    @property
    def loop_is_blocked(self) -> bool:
        """Whether its event loop has been busy with one thing for too long."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One message in the hands of its handler, until its thread is free again, or its coroutine ended."""

    message: Message
    mates: Sequence[Message]
    """The members of its chunk, itself among them: they share its transaction."""
    thread: int
    timeout: float
    ends_at: float
    holds_transaction: bool
    host: Host | None = None
    """None: a thread of its own."""
    hung: bool = False

    def report(self) -> ErrorReport:
        """Where the handler stands now, as the traceback: the first thing anyone will ask."""
        stack = thread_stack(self.thread) if self.host is None else self.host.stack()
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

    def stop(self) -> None:
        """A coroutine can be told so that it hears; a thread has to ask."""
        if self.host is not None:
            self.host.cancel()


class Runs:
    """Written by the handler threads and the event loop, each its own entries; read by the watchdog and the
    claiming thread."""

    def __init__(self) -> None:
        self._running: dict[object, Run] = {}
        self._none_hung = True
        """So far, and as a rule for ever: it is asked for at every message."""

    def begin(
        self,
        message: Message,
        handler: Handler | None,
        *,
        mates: Sequence[Message] = (),
        host: Host | None = None,
    ) -> None:
        allowed = (handler and handler.timeout) or get_settings().HANDLER_TIMEOUT
        timeout = allowed.total_seconds()
        thread = threading.get_ident()
        self._running[thread if host is None else host] = Run(
            message=message,
            mates=mates,
            thread=thread,
            timeout=timeout,
            ends_at=clock.monotonic() + timeout,
            holds_transaction=handler is not None and handler.atomic,
            host=host,
        )

    def end(self, host: Host | None = None) -> None:
        """The thread is free: commit, hooks and cleaning up are part of a run, because they can hang too."""
        self._running.pop(threading.get_ident() if host is None else host, None)

    def __len__(self) -> int:
        return len(self._running)

    def newly_hung(self) -> list[Run]:
        """Those that went past their time since this was last asked."""
        now = clock.monotonic()
        late = [run for run in list(self._running.values()) if not run.hung and now > run.ends_at]
        found = []
        for run in late:
            if self._is_held_up(run):
                run.ends_at = now + HELD_UP
            else:
                self._hang(run)
                found.append(run)
        return found

    def newly_stranded(self) -> list[Run]:
        """Coroutines that cannot go on: one that hangs does not let go of their event loop."""
        hosted = [run for run in list(self._running.values()) if run.host is not None]
        if not any(run.hung and run.host.loop_is_blocked for run in hosted if run.host is not None):
            return []
        found = [run for run in hosted if not run.hung]
        for run in found:
            self._hang(run)
        return found

    @property
    def hung(self) -> list[Run]:
        if self._none_hung:
            return []
        return [run for run in list(self._running.values()) if run.hung]

    @property
    def hopeless(self) -> bool:
        """Whether one was told to stop, and still has not."""
        return any(clock.monotonic() > run.ends_at + LAST_CHANCE for run in self.hung)

    def _hang(self, run: Run) -> None:
        self._none_hung = False  # first, for whoever asks just now
        run.hung = True

    def _is_held_up(self, late: Run) -> bool:
        """Whether it is late for no fault of its own: another coroutine keeps their event loop busy."""
        if late.host is None or late.host.is_running or not late.host.loop_is_blocked:
            return False
        return any(run.host.is_running for run in list(self._running.values()) if run.host is not None)
