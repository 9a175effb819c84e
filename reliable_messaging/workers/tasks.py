"""Running claimed messages on the handler threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import DatabaseError, InterfaceError

from .. import clock, logs
from ..dispatch import run, settlement_for, under_lease, wait_for
from ..exceptions import LeaseUnavailable
from ..message import Message
from ..registry import registry
from ..report import ErrorReport
from ..retry import default_backoff
from ..workqueue import Abandon, Release, Settlement, WorkQueue
from .chunk import ChunkRunner
from .connections import clean_up_connections
from .flights import Flights
from .poll import Pace
from .respite import Respite
from .runs import Runs

Task = Callable[[Any], None]
"""Called with the connection of the thread that it runs on."""
AWAY_DELAY = timedelta(seconds=5)
"""How long messages rest when their thread could not reach the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    queue: WorkQueue[Message]
    flights: Flights
    runs: Runs
    pace: Pace
    respite: Respite
    stopping: Callable[[], bool]
    chunk_size: int
    before_commit: Callable[[], None]
    exclusive: AbstractContextManager[Any] = nullcontext()
    """Held around a chunk where the database has only one writer anyway."""

    def split(self, messages: Iterable[Message], *, concurrency: int) -> list[Task]:
        """One task for each non-atomic message; chunks of the atomic ones, spread over the threads."""
        tasks: list[Task] = []
        atomic: list[Message] = []
        for message in messages:
            handler = registry.find(message.topic)
            if handler is not None and handler.atomic and handler.lease is not None:
                tasks.append(partial(self._run_under_lease, message))
            elif handler is not None and handler.atomic:
                atomic.append(message)
            else:
                tasks.append(partial(self._run_alone, message))
        size = max(1, min(self.chunk_size, -(-len(atomic) // concurrency)))
        starts = range(0, len(atomic), size)
        return [*tasks, *(partial(self._run_chunk, atomic[start : start + size]) for start in starts)]

    def _run_alone(self, message: Message, connection: Any) -> None:
        if connection.connection is None and self._gives_back([message], connection):
            return
        boarded = None if self.stopping() else self.flights.boarding(message, unfenced=True)
        if boarded is None:
            self.flights.land([message], [Release(item=message)])
            return
        handler = registry.find(message.topic)
        self.runs.begin(message, handler)
        started = clock.monotonic()
        try:
            settlement = settlement_for(message, handler, run(boarded, handler))
        except BaseException as exc:
            settlement = _unexpected(message, exc)
        clean_up_connections()
        self.pace.learn(clock.monotonic() - started)
        self.flights.land([message], [settlement])
        self.runs.end()

    def _run_chunk(self, chunk: Sequence[Message], connection: Any) -> None:
        if connection.connection is None and self._gives_back(chunk, connection):
            return
        waiting = {message.id: message for message in chunk}

        def land(messages: Sequence[Message], settlements: Sequence[Settlement]) -> None:
            for message in messages:
                waiting.pop(message.id, None)
            self.flights.land(messages, settlements)

        def board(message: Message) -> Message | None:
            boarded = self.flights.boarding(message, unfenced=False)
            if boarded is not None:
                self.runs.begin(message, registry.find(message.topic), mates=chunk)
            return boarded

        runner = ChunkRunner(
            queue=self.queue,
            board=board,
            land=land,
            stopping=self.stopping,
            before_commit=self.before_commit,
        )
        with self.exclusive:
            started = clock.monotonic()
            try:
                runner.run(chunk)
            except (DatabaseError, InterfaceError) as exc:
                # Not a handler's doing: no transaction can be begun. Nothing was committed. With a
                # delay, or they would be claimed and released in a busy loop.
                self.respite.begin()
                logs.event(logging.ERROR, "chunk not run", error=str(exc), count=len(waiting))
                left = list(waiting.values())
                land(left, _resting(left))
            except BaseException as exc:
                left = list(waiting.values())
                land(left, [_unexpected(message, exc) for message in left])
        clean_up_connections()
        self.runs.end()
        self.pace.learn((clock.monotonic() - started) / len(chunk))

    def _run_under_lease(self, message: Message, connection: Any) -> None:
        """In a transaction of its own: the lease is for this message alone."""
        if connection.connection is None and self._gives_back([message], connection):
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(under_lease(registry.find(message.topic), give_up=self.stopping))
            except LeaseUnavailable as exc:
                self.flights.land([message], [Release(item=message, delay=wait_for(exc))])
            except (DatabaseError, InterfaceError) as exc:
                logs.event(logging.ERROR, "lease not taken", id=message.id, error=str(exc))
                self.flights.land([message], _resting([message]))
            except BaseException as exc:  # such as a lease on a database that there is not
                self.flights.land([message], [_unexpected(message, exc)])
            else:
                self._run_chunk([message], connection)

    def _gives_back(self, messages: Sequence[Message], connection: Any) -> bool:
        """Without a session nothing is started: a handler would find out half-way, and be charged."""
        if self.stopping() or self._connects(connection):
            return False
        self.flights.land(messages, _resting(messages))
        return True

    def _connects(self, connection: Any) -> bool:
        if self.respite.is_on:
            return False
        try:
            connection.ensure_connection()
        except (DatabaseError, InterfaceError) as exc:
            retry_in = self.respite.begin()
            logs.event(logging.ERROR, "handlers not connected", error=str(exc), retry_in=retry_in)
            return False
        self.respite.end()
        return True


def _resting(messages: Sequence[Message]) -> list[Settlement]:
    return [Release(item=message, delay=AWAY_DELAY) for message in messages]


def _unexpected(message: Message, exc: BaseException) -> Settlement:
    """Outside of any handler: ours to mend, but the message must not stay claimed for ever."""
    logs.logger.exception("A message could not be run.", exc_info=exc)
    report = ErrorReport.from_exception(exc)
    return Abandon(item=message, error=report, delay=default_backoff(message.failures))
