"""What each member of a chunk runs in: undone alone when it fails."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from django.db import DatabaseError, transaction

from ..dispatch.sessions import is_alive, is_in_transaction
from ..dispatch.watch import TransactionBroken
from ..exceptions import HandlerRolledBack


class Savepoint:
    """One block for each member, one after the other. No generator: it is on the hot path.

    Where the driver says without a round trip how the transaction is, the block of one that succeeded
    stays open, and is released together with the making of the next one's: one round trip for both.
    """

    __slots__ = ("_atomic", "_connection", "_is_open")

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._atomic = transaction.atomic(using=connection.alias)
        self._is_open = False

    def __enter__(self) -> None:
        if self._is_open:
            self._go_on()
        else:
            self._atomic.__enter__()
            self._is_open = True

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc is None and self._connection.needs_rollback:
            exc = _why_rolled_back(self._connection)
            self._leave(type(exc), exc, None)
            raise exc
        if exc is not None or not is_in_transaction(self._connection):
            self._leave(kind, exc, traceback)

    def close(self) -> None:
        """After the last member: what it left must still be whole."""
        if self._is_open:
            self._leave(None, None, None)

    def forget(self) -> None:
        """The transaction is lost: leave the block in Django's books only."""
        if self._is_open:
            self._is_open = False
            for book in (self._connection.atomic_blocks, self._connection.savepoint_ids):
                if book:
                    book.pop()

    def _go_on(self) -> None:
        """From one member to the next. Under another name, because Django forgets, with a savepoint that
        is rolled back, the on_commit hooks that were registered under its name."""
        connection = self._connection
        connection.savepoint_state += 1
        old = connection.savepoint_ids[-1]
        new = f"{old.rpartition('_x')[0]}_x{connection.savepoint_state}"
        release, create = connection.ops.savepoint_commit_sql(old), connection.ops.savepoint_create_sql(new)
        with connection.cursor() as cursor:
            cursor.execute(f"{release}; {create}")
        connection.savepoint_ids[-1] = new

    def _leave(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        try:
            self._atomic.__exit__(kind, exc, traceback)
        except DatabaseError as error:
            if exc is None and is_alive(self._connection):
                # The server is well, but the savepoint is gone: no fault of the infrastructure.
                raise TransactionBroken(f"{TransactionBroken()} ({error})") from None
            raise


def _why_rolled_back(connection: Any) -> Exception:
    if connection.closed_in_transaction:
        return TransactionBroken("The handler closed the connection that its transaction was on.")
    return HandlerRolledBack()
