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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import connections, transaction

from .. import clock
from ..dispatch import Failed, run, settlement_for
from ..dispatch.classify import classify
from ..dispatch.isolate import isolated
from ..dispatch.sessions import session_of, thread
from ..dispatch.watch import TransactionBroken, Watch
from ..exceptions import LostClaim
from ..failpoints import hit
from ..hooks import is_ours
from ..logs import logger
from ..message import Message
from ..registry import registry
from ..report import ErrorReport
from ..workqueue import Ack, Release, Settlement, WorkQueue
from .connections import clean_up_connections, clean_up_others, is_shared
from .lost import report_lost
from .savepoint import Savepoint

CHUNK_SECONDS = 0.5


@dataclass(slots=True)
class _Progress:
    """How far a transaction has come."""

    ran: list[Message] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    starting: bool = False
    """One more was to start, and its savepoint could not be made."""
    failed: BaseException | None = None


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
            del rest[: self._run_some(rest)]

    def _run_some(self, messages: Sequence[Message]) -> int:
        """A session that died while nobody used it is replaced, once; then it is the database."""
        return self._run_together(messages) or self._run_together(messages, last_try=True)

    def _run_together(self, messages: Sequence[Message], *, last_try: bool = False) -> int:
        """Run as many as fit into one transaction; returns how many of them are through."""
        connection = connections[self.queue.alias]
        session = connection.connection
        progress = _Progress()
        try:
            with transaction.atomic(using=self.queue.alias, durable=True):
                self._run_members(messages, progress)
                self._settle(connection, progress)
                hit("before-commit")
        except BaseException as exc:
            clean_up_connections()  # before any other is run: what this one left would harm it too
            died = session is not None and connection.connection is not session
            if not progress.ran and (last_try or not died):
                raise
            progress.failed = exc
        else:
            hit("after-commit")
            clean_up_connections()
        if progress.failed is not None:  # not above: what runs now would have that error as its context
            self._sort_out(progress, progress.failed)
        return len(progress.ran)

    def _run_members(self, messages: Sequence[Message], progress: _Progress) -> None:
        connection = connections[self.queue.alias]
        savepoint = Savepoint(connection)
        try:
            self._run_each(messages, progress, connection, savepoint)
        except BaseException:
            savepoint.forget()
            raise
        savepoint.close()

    def _run_each(
        self, messages: Sequence[Message], progress: _Progress, connection: Any, savepoint: Savepoint
    ) -> None:
        driver, session = connection.connection, session_of(connection)
        session.changed_locally = False
        ran, settlements = progress.ran, progress.settlements
        until = clock.monotonic() + CHUNK_SECONDS
        for message in messages:
            if ran and (self.stopping() or clock.monotonic() > until):
                return
            boarded = self.board(message)
            if boarded is None:
                ran.append(message)
                continue
            handler = registry.find(message.topic)
            hooks = len(connection.run_on_commit)
            progress.starting = True
            outcome = run(boarded, handler, inside=lambda: savepoint, connection=connection)
            progress.starting = False
            ran.append(message)
            settlements.append(settlement_for(message, handler, outcome))
            if connection.connection is not driver or connection.needs_rollback:
                raise TransactionBroken
            if len(thread.connections) > 1:
                clean_up_others(connection)
            if session.changed or session.changed_locally or is_shared(connection):
                return  # the next one would run with what this one has set
            if len(connection.run_on_commit) > hooks and _has_foreign_hook(connection, hooks):
                return  # it expects to be called right after its own message's commit

    def _settle(self, connection: Any, progress: _Progress) -> None:
        self.before_commit()
        self.queue.settle_exactly([s for s in progress.settlements if isinstance(s, Ack)])
        left = [s for s in progress.settlements if not isinstance(s, Ack)]
        _arrange_hooks(connection, partial(self.land, progress.ran, left))

    def _sort_out(self, progress: _Progress, exc: BaseException) -> None:
        """Nothing was committed. Who was not alone is run again, alone, and only then is charged."""
        ran, progress.failed = progress.ran, None
        if not ran:
            return
        if len(ran) > 1 or progress.starting:
            for message in ran:
                self._run_some([message])
        elif isinstance(exc, LostClaim):
            report_lost(ran)
            self.land(ran, [])
        else:
            self.land(ran, [_blame(ran[0], exc, progress.settlements)])


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
            with Watch():
                isolated(hook)
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
