"""Bad handlers, alone and in the middle of a chunk: nothing is lost, no neighbour is charged, and the
next message finds everything as if they had never run."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DatabaseError, connections, transaction
from django.db.backends.signals import connection_created
from django.test import override_settings

from reliable_messaging import Message, OutgoingMessage, enqueue, enqueue_many
from reliable_messaging.models import Failure, Status
from reliable_messaging.session import discard
from reliable_messaging.testing import run_due
from tests.conftest import ALIASES
from tests.faults import good_neighbour, scenario_bad_handlers
from tests.faults.bad_handlers import KINDS
from tests.faults.bad_statements import READ_ONLY, SETTING, execute
from tests.faults.chunks import kill_session, rows, run_chunk, run_chunks
from tests.faults.deadlock import wait_for_partners
from tests.faults.forks import fork_and_return
from tests.faults.kinds import DONE, OTHER, OWN, TRANSIENT, Kind
from tests.sessions import in_session
from tests.tables import wipe
from tests.testapp.models import Effect, Line
from tests.workers import handling, run_worker

VENDORS = {"default": "sqlite", "postgres": "postgresql", "mariadb": "mysql"}
CASES = [
    pytest.param(kind, using, id=f"{kind.name}-{using}")
    for kind in KINDS.values()
    for using in ALIASES
    if VENDORS[using] in kind.databases
]


@pytest.fixture(autouse=True)
def no_retries_in_whole_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("reliable_messaging.workers.chunk.CHUNK_SECONDS", 60)
    with override_settings(RELIABLE_MESSAGING={"BACKOFF_BASE": 900}):
        yield


@pytest.fixture(autouse=True)
def clean_elsewhere(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield
        wait_for_partners()
        wipe(OTHER)


@pytest.fixture
def database(request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    with django_db_blocker.unblock():
        yield request.param
        wipe(request.param)


def check_neighbours(using: str, *, exactly_once: bool = True) -> None:
    for row in rows(using).filter(topic=good_neighbour.TOPIC):
        charged = (row.failures, row.transient_failures, row.crashes, row.attempts)
        assert (row.status, *charged) == (Status.DONE, 0, 0, 0, 1), row.last_error
        effects = Effect.objects.using(using).filter(message_id=row.pk).count()
        assert effects == 1 if exactly_once else effects >= 1
        assert Effect.objects.using(OTHER).filter(message_id=row.pk).exists()


def check_bad(using: str, kind: Kind) -> None:
    wanted = {
        DONE: (Status.DONE, 0, 0, 1),
        OWN: (Status.DEAD, 1, 0, kind.keeps),
        TRANSIENT: (Status.READY, 0, 1, 0),
    }
    for row in rows(using).filter(topic=kind.topic):
        effects = Effect.objects.using(using).filter(message_id=row.pk).count()
        if kind.keeps and effects > kind.keeps:
            effects = kind.keeps  # run twice: with others, then alone
        found = (row.status, row.failures, row.transient_failures, effects)
        assert found == wanted[kind.end(VENDORS[using])], row.last_error
        assert kind.tells in row.last_error
        assert row.crashes == 0
    assert not Effect.objects.using(OTHER).filter(name="never committed").exists()
    assert not Line.objects.using(using).exists()


@pytest.mark.parametrize(("kind", "database"), CASES, indirect=["database"])
def test_alone(kind: Kind, database: str) -> None:
    """Its effect is there exactly when it is done; the next message, and itself again, start clean."""
    good = good_neighbour.TOPIC
    run_chunks(database, [kind.topic], [good], [kind.topic], [good])
    check_bad(database, kind)
    check_neighbours(database)


@pytest.mark.parametrize(("kind", "database"), CASES, indirect=["database"])
def test_in_the_middle_of_a_chunk(kind: Kind, database: str) -> None:
    """Its neighbours are done, each effect once, and charged with nothing. Only where it committed
    past everything may those before it be run a second time: they had no ack yet."""
    good = good_neighbour.TOPIC
    run_chunks(database, [good, good, kind.topic, good, good], [good, kind.topic, good])
    check_bad(database, kind)
    check_neighbours(database, exactly_once=not kind.keeps)


def write(message: Message) -> None:
    Effect.objects.using(message.using).create(name="loose", message_id=message.id)


def write_uncommitted(message: Message) -> None:
    transaction.set_autocommit(False, using=message.using)
    write(message)


def write_after_begin(message: Message) -> None:
    execute(message, "BEGIN")
    write(message)


def write_and_commit(message: Message) -> None:
    write_uncommitted(message)
    transaction.commit(using=message.using)


def write_and_set(message: Message) -> None:
    write(message)
    execute(message, SETTING)


def write_and_set_read_only(message: Message) -> None:
    write(message)
    execute(message, READ_ONLY)


def write_and_leak(message: Message) -> None:
    write(message)
    KINDS["leaked_context"].work(message)


def write_and_fork(message: Message) -> None:
    write(message)
    KINDS["fork"].work(message)


@pytest.mark.parametrize(
    ("work", "status"),
    [
        (write_uncommitted, Status.DEAD),
        (write_after_begin, Status.DEAD),
        (write_and_commit, Status.DONE),
        (write_and_set, Status.DONE),
        (write_and_set_read_only, Status.DONE),
        (write_and_leak, Status.DONE),
        (write_and_fork, Status.DONE),
    ],
)
def test_not_atomic(using: str, work: Any, status: Status) -> None:
    """Done means that its effect is committed; what it left open has failed. The next message of the
    thread, atomic or not, finds nothing of it."""
    payload = good_neighbour.nothing_left(using)
    topics = ["test.bad", good_neighbour.TOPIC, "test.bad", "test.good"]
    enqueue_many([OutgoingMessage(topic=t, payload=payload, max_attempts=1) for t in topics], using=using)
    with (
        handling("test.bad", work, atomic=False),
        handling("test.good", good_neighbour.be_good, atomic=False),
    ):
        run_worker(using, concurrency=1)
    found = set(rows(using).filter(topic="test.bad").values_list("status", flat=True))
    assert found == {status}, rows(using).filter(topic="test.bad")[0].last_error
    assert set(rows(using).exclude(topic="test.bad").values_list("status", "failures")) == {(Status.DONE, 0)}
    wanted = 2 if status == Status.DONE else 0
    assert Effect.objects.using(using).filter(name="loose").count() == wanted


def test_a_transaction_of_its_own_costs_no_session(using: str) -> None:
    """A non-atomic handler that uses transaction.atomic() keeps its connection, also where Django
    itself sends the BEGIN."""
    seen: list[Any] = []

    def work(message: Message) -> None:
        with transaction.atomic(using=message.using):
            write(message)
        seen.append(connections[message.using].connection)

    enqueue_many([OutgoingMessage(topic="test.tidy") for _ in range(3)], using=using)
    with handling("test.tidy", work, atomic=False):
        run_worker(using, concurrency=1)
    assert len(seen) == 3
    assert len(set(map(id, seen))) == 1


def test_what_is_set_in_every_session_is_no_handlers_doing(using: str) -> None:
    """A receiver of connection_created, where projects put their PRAGMAs: also for a session that is
    opened while a handler runs."""
    seen: list[Any] = []

    def prepare(connection: Any, **_: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(SETTING[connection.vendor])

    def work(message: Message) -> None:
        write(message)
        seen.append(connections[message.using].connection)

    enqueue_many([OutgoingMessage(topic="test.prepared") for _ in range(3)], using=using)
    connection_created.connect(prepare)
    try:
        with handling("test.prepared", work, atomic=False):
            run_worker(using, concurrency=1)
    finally:
        connection_created.disconnect(prepare)
    assert len(seen) == 3
    assert len(set(map(id, seen))) == 1


def test_a_chunk_keeps_its_session(using: str) -> None:
    """What good handlers do ends neither their chunk nor their session."""
    blocks: set[Any] = set()
    sessions: set[Any] = set()

    def work(message: Message) -> None:
        write(message)
        with transaction.atomic(using=message.using):
            Effect.objects.using(message.using).filter(message_id=message.id).update(name="nested")
        sid = transaction.savepoint(using=message.using)
        transaction.savepoint_rollback(sid, using=message.using)
        blocks.add(connections[message.using].atomic_blocks[0])
        sessions.add(connections[message.using].connection)

    with handling("test.chunk", work):
        run_chunks(using, ["test.chunk"] * 5, ["test.chunk"] * 5)
    assert (len(blocks), len(sessions)) == (2, 1)
    assert set(rows(using).values_list("status", flat=True)) == {Status.DONE}


@pytest.mark.parametrize("killed_at", [{1}, {2}, {2, 3}, {1, 3, 5}])
@pytest.mark.parametrize("size", [1, 3])
def test_a_session_that_died_unnoticed_is_replaced(row_locking: str, killed_at: set[int], size: int) -> None:
    """Killed just before a message starts, the first, a later one, or one that is run again: all are
    done at once, and charged with nothing."""
    boardings: list[int] = []

    def board(message: Message) -> Message:
        boardings.append(1)
        if len(boardings) in killed_at:
            kill_session(row_locking)
        return message

    in_session(run_chunk, row_locking, [good_neighbour.TOPIC] * size, board).result(timeout=60)
    assert size == 1 or len(boardings) >= max(killed_at)
    check_neighbours(row_locking)


def test_a_session_that_dies_again_and_again_is_no_fault_of_the_message(row_locking: str) -> None:
    """One new session, then it is for the worker to wait: raised, nothing charged."""
    boardings: list[int] = []

    def board(message: Message) -> Message:
        boardings.append(1)
        assert len(boardings) < 10, "tried for ever"
        kill_session(row_locking)
        return message

    with pytest.raises(DatabaseError):
        in_session(run_chunk, row_locking, [good_neighbour.TOPIC], board).result(timeout=60)
    assert len(boardings) == 2
    row = rows(row_locking).get()
    assert (row.status, row.failures, row.transient_failures) == (Status.CLAIMED, 0, 0)


def test_a_fork_in_a_hook_does_not_come_back(using: str) -> None:
    """Its child ends with the hook: it takes no part in what the thread does next."""
    parents: list[bool] = []

    def work(message: Message) -> None:
        transaction.on_commit(lambda: parents.append(fork_and_return(lambda: None)), using=message.using)

    with handling("test.forking", work):
        run_chunks(using, ["test.forking"], [good_neighbour.TOPIC])
    assert parents == [True]
    assert rows(using).count() == 2


def test_a_copied_connection_is_not_kept_alive(using: str) -> None:
    """What a handler copies and forgets is gone before the next message, and what it left open there
    has failed."""
    copies: list[weakref.ref[Any]] = []
    alive: list[Any] = []

    def work(message: Message) -> None:
        gc.collect()
        alive.extend(copy() for copy in copies)
        copy = connections[message.using].copy()
        copies.append(weakref.ref(copy))
        if message.payload == 1:
            copy.set_autocommit(False)
            with copy.cursor() as cursor:
                cursor.execute("UPDATE testapp_effect SET name = ''")
        else:
            copy.ensure_connection()
            copy.close()

    enqueue_many(
        [OutgoingMessage(topic="test.copy", payload=n, max_attempts=1) for n in range(3)], using=using
    )
    with handling("test.copy", work, atomic=False):
        run_worker(using, concurrency=1)
    assert alive == [None] * 3
    assert dict(rows(using).values_list("payload", "status")) == {
        "0": Status.DONE,
        "1": Status.DEAD,
        "2": Status.DONE,
    }


def test_nobody_is_told_of_the_errors_of_others(using: str) -> None:
    """Run again because its neighbour broke the transaction: its own error is all that it is told."""
    run_chunks(using, [KINDS["system_exit"].topic, KINDS["close"].topic, KINDS["fork"].topic])
    told = Failure._base_manager.using(using).get(error_class="SystemExit").traceback
    assert "SystemExit" in told
    assert "TransactionBroken" not in told
    check_bad(using, KINDS["fork"])


def test_a_pooled_session_is_not_handed_on() -> None:
    """Closed first, so that its pool throws it away."""
    closed: list[str] = []
    driver = SimpleNamespace(close=lambda: closed.append("session"))
    pooled = SimpleNamespace(
        connection=driver,
        settings_dict={"OPTIONS": {"pool": True}},
        close=lambda: closed.append("back to the pool"),
    )
    discard(pooled)
    assert closed == ["session", "back to the pool"]


def test_tests_of_a_project_see_the_refusal(using: str) -> None:
    """run_due(), inside the transaction of a TestCase: refused there too, and nothing is committed."""
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=using):
        row = enqueue(KINDS["commit"].topic, using=using)
        run_due(using=using)
        row.refresh_from_db(using=using)
        assert row.status == Status.DEAD
        assert "may not run COMMIT" in row.last_error
        1 / 0
    assert not rows(using).exists()


def test_all_kinds_among_good_ones(using: str) -> None:
    """A real worker, four threads, chunks of ten: the short version of the chaos run."""
    scenario_bad_handlers.run(using, seed=20261117).check()
