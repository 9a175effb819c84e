"""Second sessions: real connections on real threads, for races that must be seen to happen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import connections
from django.db.backends.signals import connection_created

from reliable_messaging.workqueue.kept_plans import keep_plans

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


@contextmanager
def keeping_plans(using: str) -> Iterator[None]:
    """Every session that is begun on this alias keeps its plans, as that of a worker's claiming thread."""

    def keep(*, connection: Any, **_: Any) -> None:
        if connection.alias == using:
            keep_plans(connection)

    connections[using].close()
    connection_created.connect(keep)
    try:
        yield
    finally:
        connection_created.disconnect(keep)
        connections[using].close()
