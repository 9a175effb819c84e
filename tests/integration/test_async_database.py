"""The database in async handlers: on threads, where each call stands alone."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections, transaction

from reliable_messaging import (
    Message,
    OutgoingMessage,
    enqueue,
    enqueue_many,
)
from reliable_messaging.models import Status
from tests.testapp.models import Effect
from tests.workers import eventually, run_worker

from .coroutines import TOPIC, effects, go_on, loose, rows, run_one, working


def session_number(using: str) -> int:
    """The server's own; SQLite has none."""
    connection = connections[using]
    connection.ensure_connection()
    if connection.vendor == "sqlite":
        return id(connection.connection)
    with connection.cursor() as cursor:
        is_postgres = connection.vendor == "postgresql"
        cursor.execute("SELECT pg_backend_pid()" if is_postgres else "SELECT CONNECTION_ID()")
        return int(cursor.fetchone()[0])


def test_database_calls_of_one_handler_go_to_one_thread(using: str) -> None:
    """With a connection that is kept; several handlers have several."""
    seen: dict[int, set[tuple[int, int]]] = {}

    def look(message: Message) -> None:
        seen.setdefault(message.payload, set()).add((threading.get_ident(), session_number(message.using)))

    async def work(message: Message) -> None:
        for _ in range(3):
            await sync_to_async(look)(message)

    enqueue_many([OutgoingMessage(topic=TOPIC, payload=n) for n in range(6)], using=using)
    with loose(work):
        run_worker(using, concurrency=2)
    assert {len(pairs) for pairs in seen.values()} == {1}
    assert len(set.union(*seen.values())) == 2


def leave_open(using: str) -> None:
    transaction.set_autocommit(False, using=using)
    Effect.objects.using(using).create(name="left")


def begin_by_hand(using: str) -> None:
    transaction.atomic(using=using).__enter__()
    Effect.objects.using(using).create(name="left")


@pytest.mark.parametrize("leave", [leave_open, begin_by_hand])
@pytest.mark.parametrize("swallows", [False, True])
def test_a_transaction_that_is_left_open_reaches_nobody(
    using: str, leave: Callable[[str], None], swallows: bool
) -> None:
    """On the one connection that several handlers use in turn: the call has failed, what the others write
    is committed."""

    async def work(message: Message) -> None:
        if message.payload == "bad":
            try:
                await sync_to_async(leave)(message.using)
            except Exception:
                if not swallows:
                    raise
            await asyncio.sleep(0.05)
        else:
            await asyncio.sleep(0.02)
            await Effect.objects.using(message.using).acreate(name="kept")

    bad = enqueue(TOPIC, "bad", using=using, max_attempts=1)
    enqueue_many([OutgoingMessage(topic=TOPIC, payload="good")] * 3, using=using)
    with loose(work):
        run_worker(using, concurrency=1)
    assert effects(using) == ["kept"] * 3
    stored = rows(using).get(pk=bad.pk)
    assert stored.status == (Status.DONE if swallows else Status.DEAD)
    assert swallows or "TransactionLeftOpen" in stored.last_error


def test_a_session_that_is_changed_is_not_kept(row_locking: str) -> None:
    """What one call sets, the next would run with."""

    def change(using: str) -> None:
        with connections[using].cursor() as cursor:
            is_postgres = connections[using].vendor == "postgresql"
            cursor.execute("SET SESSION lock_timeout = 4242" if is_postgres else "SET @mine = 4242")

    def read(using: str) -> str:
        with connections[using].cursor() as cursor:
            is_postgres = connections[using].vendor == "postgresql"
            cursor.execute("SHOW lock_timeout" if is_postgres else "SELECT @mine")
            return str(cursor.fetchone()[0])

    async def work(message: Message) -> str:
        await sync_to_async(change)(message.using)
        return await sync_to_async(read)(message.using)

    assert "4242" not in run_one(row_locking, work, concurrency=1).result


def test_a_session_that_died_is_opened_again(row_locking: str) -> None:
    """The server ended it: the call that met it fails, the next has a new one."""

    def die(using: str) -> None:
        connection = connections[using]
        connection.ensure_connection()
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            else:
                cursor.execute("KILL CONNECTION_ID()")

    async def work(message: Message) -> None:
        try:
            await sync_to_async(die)(message.using)
        except Exception:
            pass
        await Effect.objects.using(message.using).acreate(name="after")

    assert run_one(row_locking, work, concurrency=1).status == Status.DONE
    assert effects(row_locking) == ["after"]


def test_a_new_session_of_the_worker_is_followed(row_locking: str) -> None:
    """After an outage the sessions of these threads are gone too: nobody is to find out by failing."""
    seen: list[int] = []

    def look(using: str) -> None:
        seen.append(session_number(using))

    async def work(message: Message) -> None:
        await sync_to_async(look)(message.using)

    with loose(work), working(row_locking, concurrency=1) as worker:
        for _ in range(2):
            enqueue(TOPIC, using=row_locking)
            worker._lookout.look_at = 0
            go_on(worker, lambda: worker.finished)
            connections[row_locking].close()
            connections[row_locking].ensure_connection()
            worker.turn()
    assert len(seen) == 2
    assert len(set(seen)) == 2


def test_no_connection_outlives_the_worker(row_locking: str) -> None:
    """Neither those of the threads for the ORM, nor those of asyncio.to_thread()."""

    async def work(message: Message) -> list[int]:
        return [
            await sync_to_async(session_number)(message.using),
            await asyncio.to_thread(session_number, message.using),
            await sync_to_async(session_number, thread_sensitive=False)(message.using),
        ]

    numbers = set(json.loads(run_one(row_locking, work).result or ""))
    assert len(numbers) >= 2
    is_postgres = connections[row_locking].vendor == "postgresql"
    ask = (
        "SELECT pid FROM pg_stat_activity" if is_postgres else "SELECT id FROM information_schema.processlist"
    )

    def is_gone() -> bool:
        with connections[row_locking].cursor() as cursor:
            cursor.execute(ask)
            return numbers.isdisjoint(number for (number,) in cursor.fetchall())

    eventually(is_gone, seconds=5)


def test_asyncio_to_thread_keeps_no_connection(row_locking: str) -> None:
    """Its threads come and go: with each call its connection is closed."""
    left: list[Any] = []

    def look(using: str) -> None:
        session_number(using)
        left.append(connections[using])

    async def work(message: Message) -> None:
        await asyncio.to_thread(look, message.using)
        left.append(left.pop().connection)

    assert run_one(row_locking, work).status == Status.DONE
    assert left == [None]


def test_sync_code_of_a_handler_may_await_again(using: str) -> None:
    """Async code that calls sync code that calls async code: asgiref brings it back to the loop."""

    async def inner(using: str) -> None:
        await Effect.objects.using(using).acreate(name="inner")

    async def work(message: Message) -> None:
        await sync_to_async(lambda: async_to_sync(inner)(message.using))()

    assert run_one(using, work, concurrency=1).status == Status.DONE
    assert effects(using) == ["inner"]


def test_the_interpreter_has_no_threads_of_ours_left(using: str) -> None:
    """The loop, and the threads for calls, end with the worker."""

    async def work(message: Message) -> None:
        await Effect.objects.using(message.using).acreate(name="x")
        await asyncio.to_thread(os.getpid)

    before = set(threading.enumerate())
    assert run_one(using, work).status == Status.DONE
    eventually(lambda: not set(threading.enumerate()) - before)
