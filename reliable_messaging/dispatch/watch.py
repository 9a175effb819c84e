"""Watching what a handler does to its database sessions while it runs.

Several atomic handlers share a transaction. One that ended it in their midst would commit what the
earlier ones wrote without their acknowledgements, and they would be run again: so such a statement
is refused before it reaches the database. What only changes the session is let through, and noted:
the session is closed before anyone else uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ..exceptions import ReliableMessagingError
from .sessions import Session, has_open_transaction, open_connections, session_of, thread
from .statements import Reach, reach


class StatementRefused(ReliableMessagingError):
    """An atomic handler may not begin or end a transaction: it shares one with its acknowledgement."""


class TransactionLeftOpen(ReliableMessagingError):
    """The handler returned and left a transaction open: what it wrote there is not committed."""


class TransactionBroken(ReliableMessagingError):
    """The handler ended or broke the transaction that it ran in."""


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Django's book-keeping of a connection's atomic blocks."""

    connection: Any
    blocks: list[Any]
    savepoints: list[Any]

    @classmethod
    def of(cls, connection: Any) -> _Blocks:
        return cls(connection, list(connection.atomic_blocks), list(connection.savepoint_ids))

    def put_back(self) -> bool:
        """As it was; True when it was not. A block that was entered by hand and never left would
        otherwise be left in the place of ours, and ours in the place of the transaction's."""
        connection = self.connection
        if connection.atomic_blocks == self.blocks and connection.savepoint_ids == self.savepoints:
            return False
        connection.atomic_blocks = self.blocks
        connection.savepoint_ids = self.savepoints
        connection.in_atomic_block = True
        return True


class Watch:
    """Around the call of one handler. ``shared`` is the connection whose transaction is not its own."""

    def __init__(self, shared: Any | None = None) -> None:
        self._shared = shared
        self._blocks = None if shared is None else _Blocks.of(shared)
        self._looking_at: list[Any] = []
        self._in_a_block: list[Any] = []
        self._refused: StatementRefused | None = None

    def __enter__(self) -> None:
        if self._shared is not None:
            session_of(self._shared)
        for connection in open_connections():
            if connection.in_atomic_block:
                self._in_a_block.append(connection)
            self.look_at(connection)
        self._outer, thread.watch = thread.watch, self

    def look_at(self, connection: Any) -> None:
        if connection not in self._looking_at:
            self._looking_at.append(connection)
            connection.execute_wrappers.append(self._look)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        thread.watch = self._outer
        for connection in self._looking_at:
            if self._look in connection.execute_wrappers:
                connection.execute_wrappers.remove(self._look)
        unbalanced = self._blocks is not None and self._blocks.put_back()
        if exc is not None:
            return
        if self._refused is not None:
            raise self._refused  # the handler has swallowed it, and went on as if it had been obeyed
        if unbalanced:
            raise TransactionBroken(
                "The handler entered or left an atomic block by hand, and did not put it back. "
                "Use `with transaction.atomic():`."
            )
        for connection in self._looking_at:
            if connection is not self._shared and connection not in self._in_a_block:
                _check_nothing_left(connection)

    def _look(
        self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        connection = context["connection"]
        text = sql if isinstance(sql, str) else _text(sql, connection)
        found = reach(text, commits_on_ddl=not connection.features.can_rollback_ddl)
        if found:
            self._note(found, text, connection)
        return execute(sql, params, many, context)

    def _note(self, found: Reach, sql: str, connection: Any) -> None:
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
