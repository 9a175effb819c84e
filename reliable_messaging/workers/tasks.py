"""Running claimed messages on the handler threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from .. import clock, logs
from ..dispatch import run, settlement_for
from ..message import Message
from ..registry import registry
from ..workqueue import Release, WorkQueue
from .chunk import ChunkRunner
from .connections import close_dirty_connections
from .flights import Flights
from .poll import Pace

Task = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    queue: WorkQueue[Message]
    flights: Flights
    pace: Pace
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
            if handler is not None and handler.atomic:
                atomic.append(message)
            else:
                tasks.append(lambda message=message: self._run_alone(message))  # type: ignore[misc]
        size = max(1, min(self.chunk_size, -(-len(atomic) // concurrency)))
        for start in range(0, len(atomic), size):
            chunk = atomic[start : start + size]
            tasks.append(lambda chunk=chunk: self._run_chunk(chunk))  # type: ignore[misc]
        return tasks

    def _run_alone(self, message: Message) -> None:
        boarded = None if self.stopping() else self.flights.boarding(message, unfenced=True)
        if boarded is None:
            self.flights.land([message], [Release(item=message)])
            return
        handler = registry.find(message.topic)
        started = clock.monotonic()
        outcome = run(boarded, handler)
        close_dirty_connections()
        self.pace.learn(clock.monotonic() - started)
        self.flights.land([message], [settlement_for(message, handler, outcome)])

    def _run_chunk(self, chunk: Sequence[Message]) -> None:
        runner = ChunkRunner(
            queue=self.queue,
            board=lambda message: self.flights.boarding(message, unfenced=False),
            stopping=self.stopping,
            before_commit=self.before_commit,
        )
        with self.exclusive:
            started = clock.monotonic()
            try:
                result = runner.run(chunk)
            except Exception:
                # Not a handler's doing: the database is away. Nothing was committed.
                logs.logger.exception("A chunk could not be run; its messages are released.")
                close_dirty_connections()
                self.flights.land(chunk, [Release(item=message) for message in chunk])
                return
        close_dirty_connections()
        self.pace.learn((clock.monotonic() - started) / len(chunk))
        if result.lost:
            report_lost(result.lost)
        self.flights.land(chunk, result.settlements)


def report_lost(messages: Iterable[Message]) -> None:
    for message in messages:
        logs.event(
            logging.WARNING,
            "claim lost",
            id=message.id,
            topic=message.topic,
            queue=message.queue,
            attempt=message.attempts,
        )
