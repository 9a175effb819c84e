"""Chunks as a thread of the worker runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db import connections

from reliable_messaging import Message, OutgoingMessage, enqueue_many, outbox
from reliable_messaging.models import OutboxMessage
from reliable_messaging.workers.chunk import ChunkRunner
from reliable_messaging.workers.connections import clean_up_connections
from reliable_messaging.workqueue import Settlement
from tests.sessions import in_session
from tests.workers import eventually

from . import good_neighbour


def rows(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def run_chunk(
    using: str, topics: Sequence[str], board: Callable[[Message], Message] = lambda message: message
) -> None:
    """These messages in one chunk, as a thread of the worker would run it."""
    payload = good_neighbour.nothing_left(using)
    enqueue_many([OutgoingMessage(topic=topic, payload=payload) for topic in topics], using=using)
    queue = outbox.queue.using(using)
    landed: list[Message] = []
    left: list[Settlement] = []

    def land(messages: Sequence[Message], settlements: Sequence[Settlement]) -> None:
        landed.extend(messages)
        left.extend(settlements)

    claimed = queue.claim(limit=len(topics))
    assert [message.topic for message in claimed] == list(topics)
    ChunkRunner(queue=queue, board=board, land=land, stopping=lambda: False).run(claimed)
    clean_up_connections()
    assert sorted(m.id for m in landed) == sorted(m.id for m in claimed), "each lands exactly once"
    assert queue.settle(left) == []


def run_chunks(using: str, *chunks: Sequence[str]) -> None:
    def work() -> None:
        for topics in chunks:
            run_chunk(using, topics)

    in_session(work).result(timeout=120)


def kill_session(using: str) -> None:
    """Of this thread, by another."""
    name = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
    kill = {"postgresql": "SELECT pg_terminate_backend(%s)", "mysql": "KILL %s"}
    count = {
        "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE pid = %s",
        "mysql": "SELECT count(*) FROM information_schema.processlist WHERE id = %s",
    }

    def ask(statements: dict[str, str], *params: int) -> int:
        with connections[using].cursor() as cursor:
            cursor.execute(statements[connections[using].vendor], params or None)
            return int(cursor.fetchone()[0]) if cursor.description else 0

    def end(session: int) -> None:
        ask(kill, session)
        eventually(lambda: not ask(count, session))

    in_session(end, ask(name)).result(timeout=60)
