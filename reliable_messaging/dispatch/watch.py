"""Watching what a handler does to its database sessions while it runs.

Several atomic handlers share a transaction. One that ended it in their midst would commit what the
earlier ones wrote without their acknowledgements, and they would be run again: so such a statement
is refused before it reaches the database. What only changes the session is let through, and noted:
the session is closed before anyone else uses it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from ..exceptions import ReliableMessagingError
from .sessions import Session, has_open_transaction, session_of, thread
from .statements import Reach, is_plain, reach

_CONNECT = inspect.unwrap(BaseDatabaseWrapper.connect).__code__


class StatementRefused(ReliableMessagingError):
    """An atomic handler may not begin or end a transaction: it shares one with its acknowledgement."""


class TransactionLeftOpen(ReliableMessagingError):
    """The handler returned and left a transaction open: what it wrote there is not committed."""


class TransactionBroken(ReliableMessagingError):
    """The handler ended or broke the transaction that it ran in."""


class Watch:
    """Around the call of one handler. ``shared`` is the connection whose transaction is not its own, one
    that is known by ``session_of``."""

    __slots__ = ("_blocks", "_in_a_block", "_outer", "_refused", "_savepoints", "_shared")

    def __init__(self, shared: Any | None = None) -> None:
        self._shared = shared
        self._refused: StatementRefused | None = None

    def __enter__(self) -> None:
        self._outer, thread.watch = thread.watch, self
        shared = self._shared
        if shared is not None:
            self._blocks, self._savepoints = shared.atomic_blocks.copy(), shared.savepoint_ids.copy()
        self._in_a_block = [c for c in thread.connections if c.in_atomic_block]
        for connection in thread.connections:
            connection.execute_wrappers.append(_look)

    def look_at(self, connection: Any) -> None:
        """One that the handler has opened."""
        if _look not in connection.execute_wrappers:
            connection.execute_wrappers.append(_look)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        thread.watch = self._outer
        for connection in thread.connections:
            if _look in connection.execute_wrappers:
                connection.execute_wrappers.remove(_look)
        unbalanced = self._shared is not None and self._put_blocks_back(self._shared)
        if exc is None and (unbalanced or self._refused is not None or thread.connections != [self._shared]):
            self._check(unbalanced)

    def _check(self, unbalanced: bool) -> None:
        if self._refused is not None:
            raise self._refused  # the handler has swallowed it, and went on as if it had been obeyed
        if unbalanced:
            raise TransactionBroken(
                "The handler entered or left an atomic block by hand, and did not put it back. "
                "Use `with transaction.atomic():`."
            )
        for connection in thread.connections:
            if connection not in self._in_a_block:
                _check_nothing_left(connection)

    def _put_blocks_back(self, connection: Any) -> bool:
        """Django's book-keeping as it was; True when it was not. A block that was entered by hand and
        never left would otherwise be left in the place of ours, and ours in the place of the
        transaction's: nothing would be committed, and nobody would know."""
        if connection.atomic_blocks == self._blocks and connection.savepoint_ids == self._savepoints:
            return False
        connection.atomic_blocks, connection.savepoint_ids = self._blocks, self._savepoints
        connection.in_atomic_block = True
        return True

    def note(self, found: Reach, sql: str, connection: Any) -> None:
        """What a statement is about to do; refused when it would end the shared transaction."""
        session: Session = session_of(connection)
        if found == Reach.TRANSACTION:
            session.changed_locally = True
        elif found == Reach.SESSION:
            session.changed = True
        elif connection is self._shared:
            self._refused = StatementRefused(
                f"An atomic handler may not run {_beginning(sql)}: it would end the transaction that it "
                "shares with its acknowledgement and with other handlers. Use transaction.atomic() for "
                "a part of its work, or declare the handler with atomic=False."
            )
            raise self._refused
        elif not hasattr(connection, "_start_transaction_under_autocommit"):  # there Django sends BEGIN
            session.changed = True


def _look(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    if not (isinstance(sql, str) and is_plain(sql)):
        _look_closer(sql, context["connection"])
    return execute(sql, params, many, context)


def _look_closer(sql: Any, connection: Any) -> None:
    text = sql if isinstance(sql, str) else _text(sql, connection)
    found = reach(text, commits_on_ddl=not connection.features.can_rollback_ddl)
    if found and thread.watch is not None and not _is_being_opened():  # a handler's thread has no watch
        thread.watch.note(found, text, connection)


def _is_being_opened() -> bool:
    """Whether the statement belongs to the opening of a session: Django's own, or a receiver's of
    ``connection_created``. Every session has it, and would never be clean."""
    frame = sys._getframe()
    while frame is not None and frame.f_code is not _CONNECT:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


def _check_nothing_left(connection: Any) -> None:
    if connection.settings_dict["AUTOCOMMIT"] and has_open_transaction(connection):
        raise TransactionLeftOpen(
            f"The handler returned and left a transaction open on {connection.alias!r}: what it wrote there "
            "is not committed. Use `with transaction.atomic(using=...):`."
        )


def _text(sql: Any, connection: Any) -> str:
    if isinstance(sql, bytes):
        return sql.decode(errors="replace")
    compose = getattr(sql, "as_string", str)
    return str(compose(connection.connection) if compose is not str else compose(sql))


def _beginning(sql: str) -> str:
    words = " ".join(sql.split())
    return words if len(words) <= 60 else f"{words[:57]}..."
