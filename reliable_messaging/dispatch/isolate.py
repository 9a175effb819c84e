"""Calling a handler so that nothing of it goes on behind our back, in this thread or in a copy of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import copy_context
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, TypeVar

from ..exceptions import ReliableMessagingError
from .sessions import begin_session, open_connections, thread

T = TypeVar("T")
UNSTARTED = (GeneratorType, CoroutineType, AsyncGeneratorType)


class NothingRan(ReliableMessagingError):
    """The handler is a generator or a coroutine: calling it has run none of its lines."""


def isolated(function: Callable[..., T], *arguments: Any) -> T:
    """Call the function in a copy of the context, and never return in a child process.

    Context variables go with the copy: Django's active language and time zone, decimal's precision.
    A child that the function made by ``os.fork()`` must not come back here: it would use the
    sessions of its parent, leave the blocks of its transaction, acknowledge a second time.
    """
    try:
        returned = copy_context().run(function, *arguments)
    except BaseException as exc:
        if thread.is_forked:
            os._exit(exit_code(exc))
        raise
    if thread.is_forked:
        os._exit(0)
    return returned


def exit_code(exc: BaseException) -> int:
    if not isinstance(exc, SystemExit):
        return 1
    return exc.code if isinstance(exc.code, int) else int(exc.code is not None)


def nothing_ran(returned: Any) -> NothingRan:
    """A handler that returned one of these has done nothing yet: its message must not be done."""
    if not isinstance(returned, AsyncGeneratorType):
        returned.close()  # or Python warns that it was never awaited
    return NothingRan(
        f"The handler returned a {type(returned).__name__}: none of its lines has run. Take the `yield` "
        "out of the handler, or declare it with `async def`, so that it is awaited."
    )


_inherited: list[Any] = []
"""Kept for ever, so that no destructor closes them: SQLite would undo its parent's transaction."""


def _part_from_parent() -> None:
    """In a child that a handler forked: it gets sessions of its own. In those that it inherited,
    both would talk at once to a server that takes them for one."""
    if thread.watch is None:
        return
    thread.is_forked = True
    nothing = os.open(os.devnull, os.O_RDWR)
    for connection in open_connections():
        driver = connection.connection
        _inherited.append(driver)
        if hasattr(driver, "fileno"):
            os.dup2(nothing, driver.fileno())
        connection.connection = None
        connection.in_atomic_block = False
        connection.atomic_blocks, connection.savepoint_ids, connection.run_on_commit = [], [], []
        connection.needs_rollback = connection.closed_in_transaction = False
        begin_session(connection)


os.register_at_fork(after_in_child=_part_from_parent)
