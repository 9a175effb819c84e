"""Cases that broke once: each of them lost, repeated or stopped something before it was mended."""

from __future__ import annotations

import asyncio
import json
import smtplib
import threading
import time
import urllib.error
from collections.abc import Callable
from datetime import timedelta
from email.message import Message as Headers
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connections, transaction
from django.test import override_settings
from django.utils import timezone
from django.utils.text import format_lazy

from reliable_messaging import Message, OutgoingMessage, Retry, clock, enqueue, enqueue_many, outbox
from reliable_messaging.dispatch.classify import classify
from reliable_messaging.dispatch.dead_letter import dead_letter, notice_payload
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.report import ErrorReport, FailureKind
from reliable_messaging.session import handler_limits, private_connection
from reliable_messaging.workers import OutboxWorker, WorkerOptions
from reliable_messaging.workqueue import Abandon
from tests.factories import MessageFactory
from tests.refusals import refuse_to_acknowledge
from tests.sessions import in_session
from tests.testapp.models import Effect
from tests.workers import eventually, handling, run_worker


def rows(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def write(message: Message) -> None:
    Effect.objects.using(message.using).create(name=str(message.payload))


def test_a_result_that_raises_while_encoded_does_not_repeat_the_work(using: str) -> None:
    """The savepoint is released by then: to fail would keep the effect and run it again."""
    enqueue("test.lazy", 1, using=using)

    def work(message: Message) -> object:
        write(message)
        return {"text": format_lazy("{missing}", other=1)}

    with handling("test.lazy", work):
        run_worker(using)
    assert (rows(using).get().status, rows(using).get().result) == (Status.DONE, None)
    assert Effect.objects.using(using).count() == 1


@pytest.mark.parametrize("wait", [timedelta.max, timedelta(days=3_000_000)])
def test_an_endless_wait_is_cut_to_what_a_database_can_hold(using: str, wait: timedelta) -> None:
    """By Retry, by a backoff, by the verbs: neither the worker nor its neighbours suffer."""
    enqueue_many([OutgoingMessage(topic="test.endless", payload=n) for n in range(4)], using=using)

    def work(message: Message) -> None:
        if message.payload == 0:
            raise Retry(after=wait)
        if message.payload == 1:
            raise Retry(after=wait, charge=False)
        if message.payload == 2:
            raise ValueError

    with handling("test.endless", work, atomic=False, backoff=lambda earlier: wait):
        run_worker(using)
    assert rows(using).get(payload="3").status == Status.DONE
    waiting = list(rows(using).filter(status=Status.READY))
    assert len(waiting) == 3
    assert all(row.due_at.year < 9000 for row in waiting)
    enqueue("test.endless", 3, queue="later", using=using)
    assert outbox.queue.using(using).look(["default", "later"]).lanes


def test_a_settlement_that_cannot_be_written_harms_no_neighbour(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes dead, with the reason; the others are done."""
    enqueue_many([OutgoingMessage(topic="test.unwritable", payload=n) for n in range(6)], using=using)
    refuse_to_acknowledge("3", monkeypatch)
    with handling("test.unwritable", write, atomic=False):
        run_worker(using)
    broken = rows(using).get(payload="3")
    assert (broken.status, broken.last_error) == (Status.DEAD, "RuntimeError: cannot be written")
    assert rows(using).filter(status=Status.DONE).count() == 5


def test_an_exception_that_cannot_even_be_looked_at_is_an_ordinary_failure(using: str) -> None:
    """A Retry subclass without its parts, a response property that raises: charged, not stuck."""

    class Bare(Retry):
        def __init__(self) -> None:
            pass

    class Strange(Exception):
        @property
        def response(self) -> object:
            raise RuntimeError

    raised = [Bare, Strange]
    enqueue_many([OutgoingMessage(topic="test.strange", payload=n) for n in range(2)], using=using)

    def work(message: Message) -> None:
        raise raised[message.payload]

    with (
        handling("test.strange", work, atomic=False),
        override_settings(RELIABLE_MESSAGING={"BACKOFF_BASE": 900}),
    ):
        run_worker(using)
    assert set(rows(using).values_list("status", "failures")) == {(Status.READY, 1)}


def test_a_task_that_fails_outside_its_handler_leaves_nothing_claimed(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong around a message, it lands, and is tried again."""
    enqueue("test.around", 1, using=using)
    enqueue("test.around.atomic", 2, using=using)

    def broken(*args: Any) -> Any:
        raise RuntimeError("around the handler")

    monkeypatch.setattr("reliable_messaging.workers.tasks.settlement_for", broken)
    monkeypatch.setattr("reliable_messaging.workers.chunk.settlement_for", broken)
    with (
        handling("test.around", write, atomic=False),
        handling("test.around.atomic", write),
        override_settings(RELIABLE_MESSAGING={"BACKOFF_BASE": 900}),
    ):
        run_worker(using, until=lambda: not rows(using).filter(failures=0).exists())
    assert set(rows(using).values_list("status", "failures")) == {(Status.READY, 1)}


def test_a_worker_does_not_reap_its_own_finished_work(using: str) -> None:
    """After an outage longer than the lease its acks still match: they come before any reaping."""
    enqueue("test.late", 1, using=using)
    worker = OutboxWorker(WorkerOptions(database=using, lease=timedelta(seconds=60)))
    worker.start()
    try:
        with handling("test.late", write, atomic=False):
            worker.turn()
            eventually(lambda: len(worker.flights.landed()) == 1)
            with clock.travel(timedelta(minutes=5)):
                worker._lookout.look_at = clock.monotonic()
                worker.turn()
    finally:
        worker.shut_down()
        worker.waiter.close()
    stored = rows(using).get()
    assert (stored.status, stored.crashes, stored.attempts) == (Status.DONE, 0, 1)


def test_a_worker_does_not_reap_what_it_is_still_running(using: str) -> None:
    """It renews its own before it reaps: nobody had taken them yet."""
    enqueue("test.running", 1, using=using)
    go = threading.Event()
    worker = OutboxWorker(WorkerOptions(database=using, lease=timedelta(seconds=60)))
    worker.start()
    try:
        with handling("test.running", lambda message: go.wait(20), atomic=False):
            worker.turn()
            eventually(lambda: worker.flights.active == 1)
            with clock.travel(timedelta(minutes=5)):
                worker._lookout.look_at = clock.monotonic()
                worker.turn()
                assert rows(using).get().status == Status.CLAIMED
                go.set()
                eventually(lambda: len(worker.flights.landed()) == 1)
                worker.turn()
    finally:
        go.set()
        worker.shut_down()
        worker.waiter.close()
    assert (rows(using).get().status, rows(using).get().crashes) == (Status.DONE, 0)


def test_a_worker_does_not_reap_what_it_has_given_up(using: str) -> None:
    """Its handler was past its time, and is no longer renewed for: that is one failure, and no crash."""
    enqueue("test.given.up", using=using)
    worker = OutboxWorker(WorkerOptions(database=using, lease=timedelta(seconds=60)))
    try:
        (message,) = worker.queue.claim(lease=60)
        report = ErrorReport.plain("HandlerTimeout", "past its time", FailureKind.OWN)
        worker.flights.take_off([message], leased_at=clock.monotonic())
        worker.flights.land([message], [Abandon(item=message, error=report, delay=timedelta(0))])
        worker.flights.lose([message])
        with clock.travel(timedelta(minutes=5)):
            worker.turn()
    finally:
        worker.waiter.close()
    stored = rows(using).get()
    assert (stored.status, stored.failures, stored.crashes) == (Status.READY, 1, 0)


def test_a_database_error_does_not_end_the_grace(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that still runs may finish, and all acks are written once the database is back."""
    enqueue_many([OutgoingMessage(topic="test.grace", payload=n) for n in range(2)], using=using)
    go = threading.Event()

    def work(message: Message) -> None:
        if message.payload == 1:
            go.wait(20)

    worker = OutboxWorker(WorkerOptions(database=using, grace=timedelta(seconds=20)))
    worker.start()
    with handling("test.grace", work, atomic=False):
        worker.turn()
        eventually(lambda: len(worker.flights.landed()) == 1)
        errors = iter([OperationalError("away")] * 5)

        def away_at_first(verb: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def settle(what: Any) -> Any:
                for error in errors:
                    connections[using].close()
                    raise error
                go.set()
                return verb(what)

            return settle

        queue = worker._settling.queue
        for name in ("settle", "settle_unless_locked"):
            monkeypatch.setattr(queue, name, away_at_first(getattr(queue, name)))
        assert worker.shut_down() is True
    worker.waiter.close()
    assert set(rows(using).values_list("status", flat=True)) == {Status.DONE}


def test_a_chunk_that_cannot_begin_rests_before_it_is_claimed_again(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection for the handler threads: no busy loop of claims and releases."""
    enqueue_many([OutgoingMessage(topic="test.away", payload=n) for n in range(20)], using=using)

    def refuse(*args: Any, **options: Any) -> Any:
        raise OperationalError("too many connections")

    monkeypatch.setattr("reliable_messaging.workers.chunk.ChunkRunner.run", refuse)
    with handling("test.away", write):
        until = time.monotonic() + 1.5
        worker = OutboxWorker(WorkerOptions(database=using))
        worker.start()
        while time.monotonic() < until:
            worker.waiter.wait(worker.turn())
        worker.shut_down()
        worker.waiter.close()
    states = set(rows(using).values_list("status", "attempts", "failures", "transient_failures"))
    # On a slow machine some have not been tried at all by then.
    assert (Status.READY, 1, 0, 0) in states <= {(Status.READY, attempts, 0, 0) for attempts in (0, 1)}


def test_the_heartbeat_survives_any_error(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on beating, and while it cannot, nothing new is claimed."""
    worker = OutboxWorker(WorkerOptions(database=using, lease=timedelta(seconds=1)))
    calls: list[int] = []
    real = worker._heartbeat._touch

    def touch(in_flight: int) -> None:
        calls.append(in_flight)
        if len(calls) < 3:
            raise RuntimeError("not a database error")
        real(in_flight)

    monkeypatch.setattr(worker._heartbeat, "_touch", touch)
    worker.start()
    eventually(lambda: len(calls) > 4)
    assert worker._heartbeat.is_fresh
    assert worker._room() > 0
    worker._heartbeat.stop()
    worker._heartbeat._last_beat -= 5
    assert worker._room() == 0
    worker.shut_down()
    worker.waiter.close()


def test_a_burst_runs_what_its_last_message_enqueued(using: str) -> None:
    """A child of the last handler, slow enough that the look before it saw nothing."""
    enqueue("test.parent", using=using)

    def work(message: Message) -> None:
        time.sleep(0.5)
        enqueue("test.child", using=message.using)

    with handling("test.parent", work, atomic=False), handling("test.child", write):
        run_worker(using)
    assert Effect.objects.using(using).count() == 1


def test_a_large_purge_goes_in_steps(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch for each look, so that claims come in between; all of it in the end."""
    from reliable_messaging.workers.maintenance import Maintenance
    from reliable_messaging.workqueue import Horizon, sweep
    from tests.factories import OutboxMessageFactory

    monkeypatch.setattr(sweep, "BATCH", 3)
    for _ in range(7):
        OutboxMessageFactory.on(using, status=Status.DONE, finished_at=timezone.now())
    maintenance = Maintenance(queue=outbox.queue.using(using))
    left = []
    with clock.travel(timedelta(days=30)):
        for _ in range(4):
            maintenance.run(Horizon())
            left.append(rows(using).count())
    assert left == [4, 1, 0, 0]


def test_the_same_item_stale_and_fresh(using: str) -> None:
    """Two claims of one message in one settlement: the stale one is lost, the fresh one counts."""
    enqueue("x", using=using)
    queue = outbox.queue.using(using)
    (stale,) = queue.claim(lease=0)
    queue.reap()
    (fresh,) = queue.claim_suspect()
    assert queue.ack([stale, fresh]) == [stale]
    assert rows(using).get().status == Status.DONE


def test_a_generator_of_ids_survives_a_deadlock(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids are read once, before the transaction that may be run again."""
    from reliable_messaging.workqueue import operate

    row = enqueue("x", using=using)
    real, errors = operate._move, iter([_deadlock(using)])

    def move(*args: Any, **options: Any) -> Any:
        for error in errors:
            raise error
        return real(*args, **options)

    monkeypatch.setattr(operate, "_move", move)
    assert [item.id for item in outbox.queue.using(using).cancel(pk for pk in [row.pk])] == [row.pk]


def test_a_deadlock_in_a_callers_transaction_is_the_callers(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database has undone all of it, the caller's own writes too: to run only our part again would
    commit half of what the caller meant."""
    from reliable_messaging.workqueue import operate

    row = enqueue("x", using=using)
    calls: list[int] = []

    def move(*args: Any, **options: Any) -> Any:
        calls.append(1)
        raise _deadlock(using)

    monkeypatch.setattr(operate, "_move", move)
    with pytest.raises(OperationalError), transaction.atomic(using=using):
        outbox.queue.using(using).cancel([row.pk])
    assert len(calls) == 1


def _deadlock(using: str) -> DatabaseError:
    error = OperationalError(1213, "Deadlock found")
    if connections[using].vendor == "postgresql":
        import psycopg

        error = OperationalError("deadlock detected")
        error.__cause__ = psycopg.errors.DeadlockDetected("deadlock detected")
    return error


def test_whose_fault_it_is() -> None:
    """By what an error was raised from; an exit status is no HTTP status."""
    wrapped = ValueError("client library")
    wrapped.__cause__ = ConnectionRefusedError()
    while_handling = ValueError("own")
    while_handling.__context__ = FileNotFoundError()
    refused = urllib.error.HTTPError("http://localhost", 404, "not found", Headers(), None)
    down = urllib.error.HTTPError("http://localhost", 503, "down", Headers(), None)
    later = smtplib.SMTPRecipientsRefused({"a": (550, b"no"), "b": (450, b"greylisted")})
    never = smtplib.SMTPRecipientsRefused({"a": (550, b"no such user")})
    away = [smtplib.SMTPServerDisconnected(), smtplib.SMTPDataError(451, b"later"), later]
    refused_mail = [smtplib.SMTPSenderRefused(553, b"never", "me"), never]
    infrastructure = [*away, wrapped, down, asyncio.TimeoutError(), TimeoutError(), OperationalError()]
    own = [*refused_mail, while_handling, refused, SystemExit(503), KeyError()]
    assert {classify(exc) for exc in infrastructure} == {FailureKind.TRANSIENT}
    assert {classify(exc) for exc in own} == {FailureKind.OWN}


def test_queues_take_turns(using: str) -> None:
    """Three busy queues: none is always first, so none starves behind the others."""
    from reliable_messaging.workers.lookout import Lookout

    for name in ("a", "b", "c"):
        enqueue("x", queue=name, using=using)
        enqueue("x", queue=name, priority=1, using=using)
    lookout = Lookout(
        queue=outbox.queue.using(using), options=WorkerOptions(database=using), before_reaping=lambda: None
    )
    first = set()
    for _ in range(3):
        lookout.look()
        assert [lane.priority for lane in lookout.lanes] == [1, 1, 1, 0, 0, 0]
        first.add(lookout.lanes[0].queue)
    assert first == {"a", "b", "c"}


def test_a_connection_that_broke_is_replaced(row_locking: str) -> None:
    """A handler whose session is killed fails alone; the next message of that thread has a new one."""
    enqueue_many([OutgoingMessage(topic="test.killed", payload=n) for n in range(3)], using=row_locking)
    kill = {"postgresql": "SELECT pg_terminate_backend(pg_backend_pid())", "mysql": "KILL CONNECTION_ID()"}

    def work(message: Message) -> None:
        if message.payload == 0:
            with connections[row_locking].cursor() as cursor:
                cursor.execute(kill[connections[row_locking].vendor])
        write(message)

    with (
        handling("test.killed", work, atomic=False),
        override_settings(RELIABLE_MESSAGING={"BACKOFF_BASE": 900}),
    ):
        run_worker(row_locking, concurrency=1)
    assert sorted(Effect.objects.using(row_locking).values_list("name", flat=True)) == ["1", "2"]
    killed = rows(row_locking).get(payload="0")
    assert (killed.status, killed.failures, killed.transient_failures) == (Status.READY, 0, 1)


def test_a_worker_uses_no_pool(row_locking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads keep their connections: out of a pool, one of them would wait for ever."""

    def in_thread() -> tuple[bool, bool]:
        with private_connection(row_locking, handler_limits(timedelta(seconds=60))):
            has_pool = "pool" in connections[row_locking].settings_dict["OPTIONS"]
            with connections[row_locking].cursor() as cursor:
                cursor.execute("SELECT 1")
                return has_pool, cursor.fetchone() == (1,)

    with monkeypatch.context() as patch:
        patch.setitem(connections.settings[row_locking]["OPTIONS"], "pool", {"max_size": 1})
        assert in_session(in_thread).result(timeout=10) == (False, True)


def test_queries_are_not_kept_under_debug(using: str) -> None:
    """Django logs every query then: a worker would grow with each message."""
    enqueue_many([OutgoingMessage(topic="test.debug", payload=n) for n in range(30)], using=using)
    kept: list[int] = []

    def work(message: Message) -> None:
        write(message)
        kept.append(len(connections[message.using].queries_log))

    with handling("test.debug", work, atomic=False), override_settings(DEBUG=True):
        run_worker(using, concurrency=1)
    assert len(kept) == 30
    assert max(kept) < 15, "more than a new connection and one message ask"


def test_a_dead_letter_says_nothing_of_jobs_that_are_none() -> None:
    """Workers of a version before there were jobs take it as it is, and would fail over a word they do not
    know."""
    notice = json.loads(notice_payload(MessageFactory(), Status.DEAD, "broken"))
    assert "scheduled_for" not in notice["message"]
    told = notice_payload(MessageFactory(scheduled_for=timezone.now()), Status.DEAD, "broken")
    assert dead_letter(MessageFactory(body=told)).message.scheduled_for is not None
