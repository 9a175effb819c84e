"""Atomic handlers, several in one transaction: exactly-once without a commit for each message.

    one durable transaction
      a savepoint: run the handler; undone if it failed or asked for a rollback
      … the next members of the chunk, each in its own savepoint …
      the acknowledgements of those that succeeded, fenced: all of them match, or nothing commits

When the transaction itself fails (a foreign key checked at COMMIT, a deadlock that threw away
earlier members, a lost claim), nobody can say whose fault it was: each member is run again,
alone, and only then is anyone charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import connections, transaction

from .. import clock
from ..announce import is_ours
from ..dispatch import Done, Failed, run, settlement_for
from ..dispatch.classify import classify
from ..exceptions import HandlerRolledBack, LostClaim, ReliableMessagingError
from ..failpoints import hit
from ..logs import logger
from ..message import Message
from ..registry import registry
from ..report import ErrorReport
from ..workqueue import Ack, Release, Settlement, WorkQueue
from .lost import report_lost

CHUNK_SECONDS = 0.5


class TransactionBroken(ReliableMessagingError):
    """The handler ended or broke the transaction that it ran in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRunner:
    queue: WorkQueue[Message]
    board: Callable[[Message], Message | None]
    """Says whether a message may still start, and gives it to its handler's hands."""
    land: Callable[[Sequence[Message], Sequence[Settlement]], None]
    """Told of messages as soon as they are through, with what is still to be settled of them, in a
    transaction of its own: failures, and what was not run."""
    stopping: Callable[[], bool]
    before_commit: Callable[[], None] = lambda: None

    def run(self, messages: Sequence[Message]) -> None:
        rest = list(messages)
        while rest:
            if self.stopping():
                self.land(rest, [Release(item=message) for message in rest])
                return
            ran = self._run_together(rest)
            del rest[:ran]

    def _run_together(self, messages: Sequence[Message]) -> int:
        """Run as many as fit into one transaction; returns how many of them are through."""
        settlements: list[Settlement] = []
        ran: list[Message] = []
        try:
            with transaction.atomic(using=self.queue.alias, durable=True):
                self._run_members(messages, settlements, ran)
                self.before_commit()
                self.queue.settle_exactly([s for s in settlements if isinstance(s, Ack)])
                left = [s for s in settlements if not isinstance(s, Ack)]
                _arrange_hooks(connections[self.queue.alias], partial(self.land, ran, left))
                hit("before-commit")
        except BaseException as exc:
            if len(ran) > 1:
                for message in ran:
                    self._run_together([message])
            elif isinstance(exc, LostClaim):
                report_lost(ran)
                self.land(ran, [])
            elif ran:
                self.land(ran, [_blame(ran[0], exc, settlements)])
            else:
                raise
        else:
            hit("after-commit")
        return len(ran)

    def _run_members(
        self, messages: Sequence[Message], settlements: list[Settlement], ran: list[Message]
    ) -> None:
        connection = connections[self.queue.alias]
        session = connection.connection
        until = clock.monotonic() + CHUNK_SECONDS
        for message in messages:
            if ran and (self.stopping() or clock.monotonic() > until):
                return
            ran.append(message)
            boarded = self.board(message)
            if boarded is None:
                continue
            handler = registry.find(message.topic)
            hooks = len(connection.run_on_commit)
            outcome = run(boarded, handler, inside=lambda: _savepoint(connection))
            settlements.append(settlement_for(message, handler, outcome))
            if connection.connection is not session or connection.needs_rollback:
                raise TransactionBroken
            if isinstance(outcome, Done) and _has_foreign_hook(connection, hooks):
                return  # it expects to be called right after its own message's commit


@contextmanager
def _savepoint(connection: Any) -> Iterator[None]:
    with transaction.atomic(using=connection.alias):
        yield
        if connection.needs_rollback:
            raise HandlerRolledBack


def _has_foreign_hook(connection: Any, since: int) -> bool:
    return any(not is_ours(function) for _, function, _ in connection.run_on_commit[since:])


def _arrange_hooks(connection: Any, land: Callable[[], None]) -> None:
    """Land first: while hooks run, a finished message must not look like one that was lost.

    An error in a hook comes after the commit. Raised, it would look as if the commit had failed,
    when it has not, and the messages would be run again."""
    hooks = [(ids, _guarded(hook), robust) for ids, hook, robust in connection.run_on_commit]
    connection.run_on_commit = [(set(), land, False), *hooks]


def _guarded(hook: Callable[[], object]) -> Callable[[], None]:
    def guarded() -> None:
        try:
            hook()
        except BaseException:
            logger.exception("An on_commit hook failed: %r", hook)

    return guarded


def _blame(message: Message, exc: BaseException, settlements: Sequence[Settlement]) -> Settlement:
    """It ran alone and its transaction failed: its own error if it had one, or else this one."""
    own = [s for s in settlements if not isinstance(s, Ack)]
    if own:
        return own[0]
    failed = Failed(error=ErrorReport.from_exception(exc, classify(exc)))
    return settlement_for(message, registry.find(message.topic), failed)
