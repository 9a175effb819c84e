"""Wake-up: a NOTIFY after the commit, and a worker that looks when it hears it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from reliable_messaging import Message, OutgoingMessage, clock, enqueue, enqueue_many, outbox, signals, wakeup
from reliable_messaging.dispatch.sessions import is_idle
from reliable_messaging.models import OutboxMessage
from reliable_messaging.registry import DEAD_LETTER_PREFIX
from reliable_messaging.workers import OutboxWorker, WorkerOptions, listener
from reliable_messaging.workers.listener import Listener
from tests.conftest import ALIASES
from tests.faults.server import HOST
from tests.faults.servers import OwnPostgres, PgBouncer
from tests.listening import Ear, working
from tests.sessions import in_session
from tests.testapp.models import Order
from tests.workers import eventually, handling

TOPIC = "test.woken"
LISTENING = f"""
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND query = 'LISTEN {wakeup.CHANNEL}'
"""


@pytest.fixture(autouse=True)
def _fresh_allowance() -> Iterator[None]:
    """What earlier tests have sent must not keep this one from sending."""
    wakeup._allowances.clear()
    yield
    wakeup._allowances.clear()


@pytest.fixture(params=["postgres"])
def postgres(request: pytest.FixtureRequest, database_access: None) -> str:
    if request.param not in ALIASES:
        pytest.skip("PostgreSQL is not there")
    return str(request.param)


@pytest.fixture
def ear(postgres: str) -> Iterator[Ear]:
    ear = Ear(postgres)
    yield ear
    ear.close()


@pytest.fixture
def ran() -> Iterator[threading.Semaphore]:
    """Released by each run of the handler."""
    runs = threading.Semaphore(0)

    def run(message: Message) -> None:
        runs.release()

    with handling(TOPIC, run, atomic=False):
        yield runs


@pytest.fixture
def worker(postgres: str, caplog: pytest.LogCaptureFixture) -> Iterator[OutboxWorker]:
    """One that knows that it hears, and will not poll again within this test."""
    caplog.set_level(logging.INFO, "reliable_messaging")
    with working(postgres) as worker:
        eventually(lambda: "wake-up heard" in caplog.text)
        yield worker


# Sending


def test_a_commit_is_told_of_and_a_rollback_is_not(postgres: str, ear: Ear) -> None:
    """Nobody is woken for a message that was never there, nor before it can be seen."""
    with transaction.atomic(using=postgres):
        enqueue(TOPIC, using=postgres)
        assert ear.heard() == 0
    assert ear.heard() == 1
    with transaction.atomic(using=postgres):
        enqueue(TOPIC, using=postgres)
        transaction.set_rollback(True, using=postgres)
    assert ear.heard() == 0


def test_it_is_sent_in_no_transaction(postgres: str, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the caller's it would hold a lock of the whole server while that commits."""
    states: list[tuple[bool, bool]] = []
    real = wakeup.notify

    def notify(connection: Any, **options: Any) -> None:
        states.append((connection.in_atomic_block, is_idle(connection)))
        real(connection, **options)

    monkeypatch.setattr(wakeup, "notify", notify)
    with transaction.atomic(using=postgres):
        Order.objects.using(postgres).create(number=1)
        enqueue(TOPIC, using=postgres)
    assert states == [(False, True)]
    assert ear.heard() == 1


@pytest.mark.parametrize("busy", ["atomic", "autocommit", "driver"])
def test_a_connection_that_is_busy_again_is_left_alone(postgres: str, ear: Ear, busy: str) -> None:
    """A hook before ours has begun something: a NOTIFY would become a part of it."""
    connection = connections[postgres]
    with transaction.atomic(using=postgres) if busy == "atomic" else _beginning(connection, busy):
        wakeup.wake_workers(postgres)
    assert ear.heard() == 0


@contextmanager
def _beginning(connection: Any, how: str) -> Iterator[None]:
    connection.ensure_connection()
    if how == "autocommit":
        connection.set_autocommit(False)
    else:
        connection.connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.connection.commit()
        connection.set_autocommit(True)


def test_a_message_for_later_wakes_nobody(postgres: str, ear: Ear) -> None:
    """There is nothing to do for it yet, and workers see for themselves when it is due."""
    enqueue(TOPIC, using=postgres, delay=60)
    assert ear.heard() == 0
    later = OutgoingMessage(topic=TOPIC, delay=60)
    enqueue_many([later, later], using=postgres)
    assert ear.heard() == 0
    enqueue_many([later, OutgoingMessage(topic=TOPIC)], using=postgres)
    assert ear.heard() == 1


def test_a_message_that_is_due_before_the_next_poll_wakes_somebody(postgres: str, ear: Ear) -> None:
    """An idle worker has looked before it was there, and would come upon it when it next looks."""
    enqueue(TOPIC, using=postgres, delay=1)
    assert ear.heard() == 1
    enqueue_many([OutgoingMessage(topic=TOPIC, delay=1)], using=postgres)
    assert ear.heard() == 1
    with override_settings(RELIABLE_MESSAGING={"POLL_MAX": 0.5}):
        enqueue(TOPIC, using=postgres, delay=1)
    assert ear.heard() == 0


def test_a_message_that_is_merged_into_a_later_one_wakes_somebody(postgres: str, ear: Ear) -> None:
    """It was to wait, and is due now."""
    enqueue(TOPIC, using=postgres, delay=60, dedup_key="one")
    assert ear.heard() == 0
    enqueue(TOPIC, using=postgres, dedup_key="one")
    assert ear.heard() == 1


def test_what_an_operator_makes_due_wakes_somebody(postgres: str, ear: Ear) -> None:
    """Requeued, or retried now. What he cancels does not."""
    message = enqueue(TOPIC, using=postgres, delay=60)
    assert ear.heard() == 0
    outbox.retry_now(message.pk, using=postgres)
    assert ear.heard() == 1
    outbox.cancel(message.pk, using=postgres)
    assert ear.heard() == 0
    outbox.requeue(message.pk, using=postgres)
    assert ear.heard() == 1


def test_a_settlement_wakes_somebody_only_for_what_is_due(postgres: str, ear: Ear) -> None:
    """Released at a stop: another worker can take it now. Done, dead or to be retried later: nobody can."""
    queue = outbox.queue.using(postgres)
    for _ in range(4):
        enqueue(TOPIC, using=postgres)
    ear.heard()
    for settle in (
        queue.ack,
        lambda m: queue.fail(m, "broken"),
        lambda m: queue.abandon(m, "broken", delay=9),
    ):
        settle(queue.claim(limit=1))
        assert ear.heard() == 0
    queue.release(queue.claim(limit=1))
    assert ear.heard() == 1


def test_a_dead_letter_wakes_somebody(postgres: str, ear: Ear) -> None:
    """It is a message like any other, written with the transition that it tells of."""
    queue = outbox.queue.using(postgres)
    enqueue(TOPIC, using=postgres)
    ear.heard()
    with handling(f"{DEAD_LETTER_PREFIX}{TOPIC}", lambda letter: None):
        queue.fail(queue.claim(), "broken")
    assert ear.heard() == 1


def test_many_commits_send_few(postgres: str, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one moment as many as were saved up."""
    monkeypatch.setattr(clock, "monotonic", lambda: 1000.0)
    for _ in range(3 * wakeup.SAVINGS):
        enqueue(TOPIC, using=postgres)
    assert ear.heard() == wakeup.SAVINGS


def test_the_setting_turns_it_off(postgres: str, ear: Ear) -> None:
    """WAKEUP False: nothing is sent."""
    with override_settings(RELIABLE_MESSAGING={"WAKEUP": False}):
        enqueue(TOPIC, using=postgres)
    assert ear.heard() == 0


def test_its_errors_reach_nobody(postgres: str, ear: Ear) -> None:
    """The session ends between the commit and the NOTIFY: the message is stored and told of, the caller
    hears of nothing, and Django is told to look at the connection before it is used again."""
    connection = connections[postgres]
    told: list[OutboxMessage] = []

    def receive(message: OutboxMessage, **_: Any) -> None:
        told.append(message)

    def end_session() -> None:
        pid = connection.connection.info.backend_pid
        in_session(lambda: _execute(postgres, "SELECT pg_terminate_backend(%s)", [pid])).result(10)

    signals.enqueued.connect(receive)
    try:
        with transaction.atomic(using=postgres):
            transaction.on_commit(end_session, using=postgres)
            message = enqueue(TOPIC, using=postgres)
    finally:
        signals.enqueued.disconnect(receive)
    assert ear.heard() == 0
    assert told == [message]
    connection.close_at = None  # a connection that is kept
    connection.close_if_unusable_or_obsolete()
    assert OutboxMessage._base_manager.using(postgres).get().pk == message.pk


def test_it_does_not_wait_for_the_lock_of_another(postgres: str) -> None:
    """Somebody's NOTIFY is in a transaction whose COMMIT waits for a standby that is gone. It has the lock
    of the whole server for as long; our caller goes on."""
    if reason := OwnPostgres.unavailable():
        pytest.skip(reason)
    with OwnPostgres() as server, server.standing_in() as alias, server.session() as session:
        session.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        session.execute("SELECT pg_reload_conf()")
        stuck = server.session()
        in_session(_commit_with_a_notify, stuck)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        eventually(lambda: session.execute(waiting).fetchone() == (1,))
        in_session(_enqueue_without_the_standby, alias).result(timeout=10)
        assert session.execute(waiting).fetchone() == (1,)
        session.execute("SELECT pg_terminate_backend(%s)", [stuck.info.backend_pid])


def _enqueue_without_the_standby(using: str) -> None:
    _execute(using, "SELECT set_config('synchronous_commit', 'local', false)")
    enqueue(TOPIC, using=using)


def _commit_with_a_notify(session: Any) -> None:
    with session.transaction():
        session.execute("CREATE TABLE of_somebody (id int)")
        session.execute("NOTIFY something")


def test_it_waits_for_no_disk(postgres: str) -> None:
    """There is nothing in it to be lost, and it holds a lock of the whole server while it commits. The
    caller's next commit is as durable as ever."""
    ask = "SHOW synchronous_commit"
    with transaction.atomic(using=postgres):
        _execute(postgres, wakeup.NOTIFY % (wakeup.CHANNEL, ""))
        assert _execute(postgres, ask) == [("off",)]
    assert _execute(postgres, ask) == [("on",)]


def test_it_is_no_query_of_the_callers(postgres: str, ear: Ear) -> None:
    """Who counts or forbids queries after a commit does not meet it."""
    with transaction.atomic(using=postgres):
        enqueue(TOPIC, using=postgres)
        with CaptureQueriesContext(connections[postgres]) as queries:
            transaction.on_commit(queries.captured_queries.clear, using=postgres)
    enqueue(TOPIC, using=postgres)
    assert ear.heard() == 2
    assert not [query for query in queries if "notify" in query["sql"].lower()]


def test_a_database_without_it_is_none_the_worse(using: str) -> None:
    """Enqueueing works everywhere, and a worker listens where there is something to hear."""
    enqueue(TOPIC, using=using)
    wakeup.wake_workers(using)
    worker = OutboxWorker(WorkerOptions(database=using))
    worker.waiter.close()
    assert (worker._listener is not None) == (connections[using].vendor == "postgresql")


# Listening


@pytest.mark.parametrize("queue", [None, "a queue of its own"])
def test_a_message_is_run_at_once(
    postgres: str, worker: OutboxWorker, ran: threading.Semaphore, queue: str | None
) -> None:
    """The next poll would come in minutes. Its queue had no message when the worker last looked."""
    for _ in range(3):
        enqueue(TOPIC, using=postgres, queue=queue)
        assert ran.acquire(timeout=20)


def test_what_a_handler_enqueues_is_run_at_once(
    postgres: str, worker: OutboxWorker, ran: threading.Semaphore
) -> None:
    """From inside of an atomic handler: after the commit of its chunk."""

    def pass_on(message: Message) -> None:
        enqueue(TOPIC)

    with handling("test.first", pass_on):
        enqueue("test.first", using=postgres)
        assert ran.acquire(timeout=20)


def test_a_lost_listener_comes_back(
    postgres: str, worker: OutboxWorker, ran: threading.Semaphore, caplog: pytest.LogCaptureFixture
) -> None:
    """Its session was ended. What came meanwhile is looked for, and what comes later is heard."""
    _execute(postgres, f"SELECT pg_terminate_backend(pid) FROM ({LISTENING}) AS listening")
    eventually(lambda: "wake-up lost" in caplog.text)
    with override_settings(RELIABLE_MESSAGING={"WAKEUP": False}):
        enqueue(TOPIC, using=postgres)
    assert ran.acquire(timeout=20)
    eventually(lambda: bool(_execute(postgres, LISTENING)))
    enqueue(TOPIC, using=postgres)
    assert ran.acquire(timeout=20)


def test_a_test_that_cannot_be_sent_ends_no_worker(
    postgres: str, worker: OutboxWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """By an error of the driver's, which no loop knows: a full queue of notifications, a lock, a session that
    was ended. The work goes on, and the test comes later."""
    listener, connection = worker._listener, connections[postgres]
    assert listener is not None
    connection.ensure_connection()
    end = f"SELECT pg_terminate_backend({connection.connection.info.backend_pid})"
    assert in_session(_execute, postgres, end).result(timeout=30)
    listener._test_wanted = True
    try:
        listener.test_if_wanted(connection)
    finally:
        connection.close()
    assert caplog.records[-1].__dict__["rm"]["retry_in"] == 1.0
    listener.test_if_wanted(connection)
    assert listener._test_wanted, "not before the pause is over"
    listener._test_rest.end()
    listener.test_if_wanted(connection)
    assert not listener._test_wanted


@pytest.mark.parametrize("options", [{"wakeup": False}, {"burst": True}, {"quarantine": True}])
def test_who_is_not_to_listen_does_not(postgres: str, options: dict[str, Any]) -> None:
    """Told so, or not there for long enough."""
    worker = OutboxWorker(WorkerOptions(database=postgres, **options))
    worker.waiter.close()
    assert worker._listener is None


def test_the_setting_turns_listening_off(postgres: str) -> None:
    """WAKEUP False: no connection is opened for it."""
    with override_settings(RELIABLE_MESSAGING={"WAKEUP": False}):
        assert not WorkerOptions().wakeup


def test_a_listener_that_hangs_holds_up_no_stop(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread may be in the middle of a connect that takes for ever."""
    go, hangs = threading.Event(), threading.Event()

    def listen(self: Listener) -> None:
        hangs.set()
        go.wait(60)

    monkeypatch.setattr(Listener, "_listen", listen)
    with working(postgres) as worker:
        assert hangs.wait(10)
        began = time.monotonic()
        worker.stop_flag.request()
        eventually(lambda: not worker._pool.alive and not worker._heartbeat._thread.is_alive())
        assert time.monotonic() - began < 5
    go.set()


# Through a pooler


@pytest.fixture
def bouncer(postgres: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Everybody reaches the alias through PgBouncer; the alias ``direct`` goes past it."""
    if reason := PgBouncer.unavailable():
        assert os.environ.get("REQUIRE_SERVICES") != "1", reason
        pytest.skip(reason)
    given: Any = connections.settings
    with PgBouncer() as bouncer, monkeypatch.context() as patch:
        patch.setitem(given, "direct", dict(given[postgres]))
        patch.setitem(given[postgres], "HOST", HOST)
        patch.setitem(given[postgres], "PORT", bouncer.port)
        connections[postgres].close()
        yield postgres
        connections[postgres].close()


def test_a_pooler_that_swallows_it_is_told_of(
    bouncer: str, ran: threading.Semaphore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In transaction mode LISTEN is answered, and nothing comes. One line says what to do, the pooler's
    sessions are left as they were, and messages are run by polling."""
    monkeypatch.setattr(listener, "TEST_SECONDS", 0.5)
    poll = timedelta(seconds=0.1)
    with working(bouncer, poll_min=poll, poll_max=poll):
        enqueue(TOPIC, using=bouncer)
        assert ran.acquire(timeout=20)
        eventually(lambda: "wake-up not heard" in caplog.text)
        assert "WAKEUP_DATABASE" in caplog.text
        enqueue(TOPIC, using=bouncer)
        assert ran.acquire(timeout=20)
        assert caplog.text.count("wake-up") == 1


def test_a_direct_connection_goes_past_the_pooler(
    bouncer: str, ran: threading.Semaphore, caplog: pytest.LogCaptureFixture
) -> None:
    """WAKEUP_DATABASE names its alias; everything else still goes through the pooler."""
    caplog.set_level(logging.INFO, "reliable_messaging")
    with override_settings(RELIABLE_MESSAGING={"WAKEUP_DATABASE": "direct"}), working(bouncer):
        eventually(lambda: "wake-up heard" in caplog.text)
        enqueue(TOPIC, using=bouncer)
        assert ran.acquire(timeout=20)


def _execute(using: str, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connections[using].cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())
