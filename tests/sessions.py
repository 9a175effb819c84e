"""Second sessions: real connections on real threads, for races that must be seen to happen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from django.db import connections

T = TypeVar("T")


def in_session(function: Callable[..., T], *args: Any) -> Future[T]:
    """Run the function on a thread, and so on a connection, of its own."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as exc:
            future.set_exception(exc)
        finally:
            connections.close_all()

    threading.Thread(target=work, daemon=True).start()
    return future


def together(functions: list[Callable[[], T]]) -> list[T]:
    """Run all at the same moment, each in its own session."""
    barrier = threading.Barrier(len(functions))

    def started(function: Callable[[], T]) -> T:
        barrier.wait(timeout=30)
        return function()

    return [future.result(timeout=60) for future in [in_session(started, f) for f in functions]]
