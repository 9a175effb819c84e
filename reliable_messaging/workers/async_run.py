"""One message in the hands of an async handler."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ..message import Message
from .event_loop import EventLoop
from .stacks import coroutine_stack, thread_stack

_lock = threading.Lock()


@dataclass(slots=True, kw_only=True, eq=False)
class AsyncRun:
    """It is over when its coroutine has ended, and with it every call that it made on a thread: one that was
    cancelled leaves such a call behind, and nobody can end that."""

    message: Message
    loop: EventLoop
    on_over: Callable[[AsyncRun], None]
    task: asyncio.Task[None] | None = None
    _parts: int = field(default=1, init=False)
    """The coroutine, and its calls."""

    def join(self) -> None:
        with _lock:
            self._parts += 1

    def leave(self) -> None:
        with _lock:
            self._parts -= 1
            is_over = self._parts == 0
        if is_over:
            self.on_over(self)

    def stack(self) -> str:
        return thread_stack(self.loop.thread) if self.is_running else coroutine_stack(self._coroutine)

    def cancel(self) -> None:
        if self.task is not None:
            self.loop.call(self.task.cancel)

    @property
    def is_running(self) -> bool:
        return bool(getattr(self._coroutine, "cr_running", False))

    @property
    def loop_is_blocked(self) -> bool:
        return self.loop.is_blocked

    @property
    def _coroutine(self) -> Any:
        return None if self.task is None else self.task.get_coro()


current_run: ContextVar[AsyncRun | None] = ContextVar("reliable_messaging_async_run", default=None)
"""Whose coroutine this is, also in the tasks that it starts."""
