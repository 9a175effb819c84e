"""The worker, ticked by hand: handlers, chunks, retries, dead letters, signals."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import override_settings

from reliable_messaging import (
    DeadLetter,
    Message,
    OutgoingMessage,
    PermanentError,
    Retry,
    TransientError,
    clock,
    enqueue,
    enqueue_many,
    outbox,
    signals,
)
from reliable_messaging.conf import get_settings
from reliable_messaging.ids import uuid7
from reliable_messaging.models import Failure, OutboxMessage, Status, Worker
from reliable_messaging.registry import DEAD_LETTER_PREFIX
from tests.testapp.models import Effect
from tests.workers import handling, run_worker

FAST = {"BACKOFF_BASE": 0.01, "BACKOFF_JITTER": 0}


def row(using: str, **lookup: Any) -> OutboxMessage:
    found: OutboxMessage = OutboxMessage._base_manager.using(using).get(**lookup)
    return found


def effects(using: str) -> list[str]:
    return sorted(Effect.objects.using(using).values_list("name", flat=True))


def write(message: Message) -> None:
    Effect.objects.using(message.using).create(name=str(message.payload), message_id=message.id)


def test_an_atomic_handler_runs_and_its_result_is_kept(using: str) -> None:
    """Its row, the ack and the return value are there; the worker's own row is gone again."""
    enqueue("test.job", {"n": 1}, using=using)

    def work(message: Message) -> dict[str, int]:
        write(message)
        return {"answer": 42}

    with handling("test.job", work):
        run_worker(using)
    stored = row(using)
    assert (stored.status, stored.result, stored.attempts) == (Status.DONE, '{"answer":42}', 1)
    assert effects(using) == ["{'n': 1}"]
    assert not Worker._base_manager.using(using).exists()


@pytest.mark.parametrize("atomic", [True, False])
def test_many_messages_are_all_done_once(using: str, atomic: bool) -> None:
    """130 messages on 4 threads: every effect exactly once."""
    enqueue_many([OutgoingMessage(topic="test.many", payload=n) for n in range(130)], using=using)
    with handling("test.many", write, atomic=atomic):
        run_worker(using)
    assert sorted(map(int, effects(using))) == list(range(130))
    assert set(OutboxMessage._base_manager.using(using).values_list("status", flat=True)) == {Status.DONE}


def test_a_failing_atomic_handler_leaves_nothing_and_its_neighbours_alone(using: str) -> None:
    """In one chunk, the one that raises is undone and charged; the others commit."""
    enqueue_many([OutgoingMessage(topic="test.chunk", payload=n) for n in range(6)], using=using)

    def work(message: Message) -> None:
        write(message)
        if message.payload == 3:
            raise ValueError("not this one")

    with (
        handling("test.chunk", work, max_attempts=5),
        override_settings(RELIABLE_MESSAGING={"BACKOFF_BASE": 900}),
    ):
        run_worker(using, concurrency=1)
    assert effects(using) == ["0", "1", "2", "4", "5"]
    failed = row(using, payload="3")
    assert (failed.status, failed.failures, failed.last_error) == (
        Status.READY,
        1,
        "ValueError: not this one",
    )
    failure = Failure._base_manager.using(using).get()
    assert (failure.item_id, failure.error_class) == (failed.pk, "ValueError")
    assert "not this one" in failure.traceback


def test_chunks_save_commits(using: str) -> None:
    """Ten atomic messages share a transaction: far fewer commits than messages."""
    enqueue_many([OutgoingMessage(topic="test.commits", payload=n) for n in range(40)], using=using)
    blocks: set[object] = set()

    def work(message: Message) -> None:
        blocks.add(connections[message.using].atomic_blocks[0])

    with handling("test.commits", work):
        run_worker(using, concurrency=1, chunk_size=10)
    assert len(blocks) <= 8


def test_it_fails_twice_and_then_succeeds(using: str) -> None:
    """Retried with backoff until it works; its failures stay on record."""
    enqueue("test.flaky", using=using)
    calls: list[int] = []

    def work(message: Message) -> None:
        calls.append(message.attempts)
        if len(calls) < 3:
            raise ValueError("not yet")

    with handling("test.flaky", work), override_settings(RELIABLE_MESSAGING=FAST):
        run_worker(using, until=lambda: len(calls) == 3)
    stored = row(using)
    assert (calls, stored.status, stored.failures) == ([1, 2, 3], Status.DONE, 2)


def test_steering_exceptions(using: str) -> None:
    """PermanentError → dead; Retry → after its time; TransientError and OSError → not its fault;
    HTTP 4xx → its fault; SystemExit and MemoryError → ordinary failures."""

    class HttpError(OSError):
        def __init__(self, code: int) -> None:
            self.response = type("Response", (), {"status_code": code})()

    raised = {
        "permanent": PermanentError("never"),
        "retry": Retry(after=600),
        "free retry": Retry(after=600, charge=False),
        "free retry, no time": Retry(charge=False),
        "transient": TransientError("down"),
        "network": ConnectionResetError(),
        "http 503": HttpError(503),
        "http 422": HttpError(422),
        "exit": SystemExit(3),
        "memory": MemoryError(),
        "own": KeyError("x"),
    }
    for name in raised:
        enqueue("test.steer", name, using=using)

    def work(message: Message) -> None:
        raise raised[message.payload]

    with handling("test.steer", work, atomic=False, backoff=lambda n: timedelta(hours=n + 1)):
        run_worker(using)
    seen = {
        stored.payload.strip('"'): (stored.status, stored.failures, stored.transient_failures)
        for stored in OutboxMessage._base_manager.using(using)
    }
    assert seen == {
        "permanent": (Status.DEAD, 1, 0),
        "retry": (Status.READY, 1, 0),
        "free retry": (Status.READY, 0, 0),
        "free retry, no time": (Status.READY, 0, 0),
        "transient": (Status.READY, 0, 1),
        "network": (Status.READY, 0, 1),
        "http 503": (Status.READY, 0, 1),
        "http 422": (Status.READY, 1, 0),
        "exit": (Status.READY, 1, 0),
        "memory": (Status.READY, 1, 0),
        "own": (Status.READY, 1, 0),
    }
    waits = {
        s.payload.strip('"'): s.due_at - s.last_attempt_at for s in OutboxMessage._base_manager.using(using)
    }
    assert timedelta(seconds=599) < waits["retry"] < timedelta(seconds=630)
    for name in ("own", "free retry, no time"):
        assert timedelta(minutes=59) < waits[name] < timedelta(minutes=61)


def test_an_unknown_topic_is_not_killed(using: str) -> None:
    """An older worker retries it as an infrastructure failure, and the row says so."""
    enqueue("from.the.future", max_attempts=1, using=using)
    run_worker(using)
    stored = row(using)
    assert (stored.status, stored.failures, stored.transient_failures) == (Status.READY, 0, 1)
    assert "No handler for the topic 'from.the.future'" in stored.last_error


@pytest.mark.parametrize("atomic", [True, False])
def test_a_result_that_cannot_be_kept_does_not_fail_the_message(using: str, atomic: bool) -> None:
    """The work is done: the value is dropped with a warning."""
    enqueue("test.result", 1, using=using)

    def work(message: Message) -> object:
        write(message)
        return object()

    with handling("test.result", work, atomic=atomic):
        run_worker(using)
    assert (row(using).status, row(using).result) == (Status.DONE, None)
    assert effects(using) == ["1"]


def test_a_handler_that_asks_for_a_rollback_has_failed(using: str) -> None:
    """set_rollback(True) without an exception is not taken for success."""
    enqueue("test.rollback", 1, using=using)
    enqueue("test.rollback", 2, using=using)

    def work(message: Message) -> None:
        write(message)
        if message.payload == 1:
            transaction.set_rollback(True, using=message.using)

    with handling("test.rollback", work):
        run_worker(using, concurrency=1)
    assert effects(using) == ["2"]
    assert row(using, payload="1").failures == 1
    assert "HandlerRolledBack" in row(using, payload="1").last_error


def test_a_broken_transaction_is_run_again_one_by_one(using: str) -> None:
    """A handler that closes the connection in mid-chunk harms only itself."""
    enqueue_many([OutgoingMessage(topic="test.closing", payload=n) for n in range(5)], using=using)

    def work(message: Message) -> None:
        write(message)
        if message.payload == 2:
            connections[message.using].close()

    with handling("test.closing", work), override_settings(RELIABLE_MESSAGING={"BACKOFF_BASE": 900}):
        run_worker(using, concurrency=1)
    assert effects(using) == ["0", "1", "3", "4"]
    assert row(using, payload="2").status == Status.READY
    charged = OutboxMessage._base_manager.using(using).exclude(failures=0, transient_failures=0)
    assert [m.payload for m in charged] == ["2"]


@pytest.mark.parametrize("robust", [True, False])
def test_an_error_in_an_on_commit_hook_settles_nothing(using: str, robust: bool) -> None:
    """It comes after the commit: logged, and the message stays done, run once. A partial, whose
    missing name trips Django's own handling of robust hooks, is no exception."""
    enqueue_many([OutgoingMessage(topic="test.hook", payload=n) for n in range(3)], using=using)
    hooked: list[int] = []

    def hook(number: int) -> None:
        hooked.append(number)
        raise ValueError("in a hook")

    def work(message: Message) -> None:
        write(message)
        number = message.payload
        transaction.on_commit(partial(hook, number), using=message.using, robust=robust)

    with handling("test.hook", work):
        run_worker(using, concurrency=1)
    assert effects(using) == ["0", "1", "2"]
    assert sorted(hooked) == [0, 1, 2]
    assert set(OutboxMessage._base_manager.using(using).values_list("status", "failures")) == {
        (Status.DONE, 0)
    }


def test_a_hook_ends_its_chunk(using: str) -> None:
    """A foreign on_commit hook runs before the next message of the batch."""
    enqueue_many([OutgoingMessage(topic="test.order", payload=n) for n in range(4)], using=using)
    seen: list[str] = []

    def work(message: Message) -> None:
        number = message.payload
        seen.append(f"run {number}")
        transaction.on_commit(lambda: seen.append(f"hook {number}"), using=message.using)

    with handling("test.order", work):
        run_worker(using, concurrency=1)
    assert all(seen[i].replace("run", "hook") == seen[i + 1] for i in range(0, 8, 2)), seen


def test_enqueueing_in_a_handler_does_not_end_its_chunk(using: str) -> None:
    """Our own hooks are no reason for a commit; children inherit correlation and causation."""
    enqueue_many([OutgoingMessage(topic="test.parent", correlation_id="c-1") for _ in range(10)], using=using)
    enqueue("test.parent", using=using)
    blocks: set[object] = set()

    def work(message: Message) -> None:
        blocks.add(connections[message.using].atomic_blocks[0])
        enqueue("test.child", using=message.using)

    with handling("test.parent", work), handling("test.child", lambda message: None):
        run_worker(using, concurrency=1)
    children = OutboxMessage._base_manager.using(using).filter(topic="test.child")
    parents = {m.pk: m for m in OutboxMessage._base_manager.using(using).filter(topic="test.parent")}
    assert len(children) == 11
    assert len(blocks) < 11
    for child in children:
        parent = parents[child.causation_id]
        assert child.correlation_id == (parent.correlation_id or str(parent.pk))


def test_a_child_of_a_failed_handler_is_never_sent(using: str) -> None:
    """What an atomic handler enqueues dies with its savepoint."""
    enqueue("test.parent", max_attempts=1, using=using)

    def work(message: Message) -> None:
        enqueue("test.child", using=message.using)
        raise ValueError

    with handling("test.parent", work):
        run_worker(using)
    assert not OutboxMessage._base_manager.using(using).filter(topic="test.child").exists()


def test_a_dirty_connection_is_closed(using: str) -> None:
    """A non-atomic handler that leaves a transaction open does not spoil the next message."""
    enqueue_many([OutgoingMessage(topic="test.dirty", payload=n) for n in range(3)], using=using)

    def work(message: Message) -> None:
        assert connections[message.using].get_autocommit()
        write(message)
        transaction.set_autocommit(False, using=message.using)

    with handling("test.dirty", work, atomic=False):
        run_worker(using, concurrency=1)
    assert effects(using) == ["0", "1", "2"]
    assert set(OutboxMessage._base_manager.using(using).values_list("status", flat=True)) == {Status.DONE}


def test_a_block_that_was_left_by_sql_is_closed(using: str) -> None:
    """Django still believes in the transaction that the handler has ended past it: what the next message
    writes in a block of its own would be a savepoint of nothing."""
    enqueue_many([OutgoingMessage(topic="test.past", payload=n) for n in range(3)], using=using)

    def work(message: Message) -> None:
        assert not connections[message.using].in_atomic_block
        transaction.atomic(using=message.using).__enter__()
        write(message)
        with connections[message.using].cursor() as cursor:
            cursor.execute("COMMIT")

    with handling("test.past", work, atomic=False):
        run_worker(using, concurrency=1)
    assert effects(using) == ["0", "1", "2"]
    assert set(OutboxMessage._base_manager.using(using).values_list("status", "failures")) == {
        (Status.DONE, 0)
    }


def test_the_dead_letter_callback_is_told_once(using: str) -> None:
    """Dead and expired alike: the callback gets the message, the status and the error."""
    told: list[tuple[Any, str, str]] = []
    enqueue("test.doomed", {"n": 1}, max_attempts=1, using=using)
    enqueue("test.doomed", {"n": 2}, expires_in=0.001, using=using)

    def work(message: Message) -> None:
        raise ValueError("no")

    def callback(dead: DeadLetter) -> None:
        told.append((dead.message.payload["n"], dead.status, dead.error))

    with handling("test.doomed", work), handling(DEAD_LETTER_PREFIX + "test.doomed", callback):
        with (
            clock.travel(timedelta(seconds=1)),
            override_settings(RELIABLE_MESSAGING={"MAX_PAYLOAD_BYTES": 9}),
        ):
            run_worker(using, until=lambda: len(told) == 2)
    assert sorted(told) == [(1, "dead", "ValueError: no"), (2, "expired", "")]
    notice = OutboxMessage._base_manager.using(using).filter(topic=DEAD_LETTER_PREFIX + "test.doomed")
    assert {m.causation_id for m in notice} == {
        m.pk for m in OutboxMessage._base_manager.using(using).filter(topic="test.doomed")
    }


def test_the_callback_does_not_need_the_row_of_the_ended_message(using: str) -> None:
    """OUTBOX_RETENTION = 0 purges an expired row at once: its callback gets the message all the same,
    with the error of its last attempt."""
    told: list[DeadLetter] = []
    row = enqueue("test.gone", {"n": 1}, headers={"h": "x"}, expires_in=60, correlation_id="c", using=using)
    (item,) = outbox.queue.using(using).claim()
    outbox.queue.using(using).abandon([item], ValueError("first try"), delay=0)
    with (
        handling(DEAD_LETTER_PREFIX + "test.gone", told.append),
        clock.travel(timedelta(minutes=2)),
        override_settings(RELIABLE_MESSAGING={"OUTBOX_RETENTION": 0}),
    ):
        outbox.queue.using(using).expire()
        with clock.travel(timedelta(minutes=1)):
            assert outbox.queue.using(using).purge() == 1
        run_worker(using, until=lambda: bool(told))
    (letter,) = told
    assert (letter.status, letter.error) == ("expired", "ValueError: first try")
    assert (letter.message.id, letter.message.payload, letter.message.headers) == (
        row.id,
        {"n": 1},
        {"h": "x"},
    )
    assert (letter.message.correlation_id, letter.message.attempts) == ("c", 1)
    assert letter.message.created_at - row.created_at < timedelta(milliseconds=1)


def test_signals_tell_what_became_of_a_message(using: str, caplog: pytest.LogCaptureFixture) -> None:
    """done, retrying, dead, expired; a receiver that raises breaks nothing; CR/LF are escaped in logs."""
    told: list[tuple[str, str]] = []
    receivers = []
    for name in ("done", "retrying", "dead", "expired"):

        def receive(message: Message, name: str = name, **_: Any) -> None:
            told.append((name, str(message.payload)))
            raise RuntimeError("a bad receiver")

        getattr(signals, name).connect(receive)
        receivers.append((getattr(signals, name), receive))
    for name in ("done", "retrying", "dead"):
        enqueue("test.signals", name, using=using)
    enqueue("test.signals", "expired", expires_in=0.001, delay=0, using=using)

    def work(message: Message) -> None:
        if message.payload == "retrying":
            raise ValueError("line one\r\nline two")
        if message.payload == "dead":
            raise PermanentError("dead")

    try:
        with caplog.at_level(logging.INFO, logger="reliable_messaging"):
            with (
                handling("test.signals", work, backoff=lambda earlier: timedelta(hours=1)),
                clock.travel(timedelta(seconds=1)),
            ):
                run_worker(using)
    finally:
        for signal, receive in receivers:
            signal.disconnect(receive)
    assert sorted(told) == [(n, n) for n in ("dead", "done", "expired", "retrying")]
    lines = [record.getMessage() for record in caplog.records if hasattr(record, "rm")]
    assert any(r"line one\r\nline two" in line for line in lines)
    assert not any("\n" in line or "\r" in line for line in lines)


def test_the_wrong_backoff_of_a_handler_falls_back(using: str) -> None:
    """A backoff that raises does not lose the failure."""
    enqueue("test.backoff", using=using)

    def work(message: Message) -> None:
        raise ValueError

    def broken(earlier: int) -> timedelta:
        raise RuntimeError

    with handling("test.backoff", work, backoff=broken):
        run_worker(using, until=lambda: row(using).failures == 1)
    assert row(using).status == Status.READY
    assert row(using).last_error.startswith("ValueError")


def test_max_messages_stops(using: str) -> None:
    """After that many, the rest stays ready and uncharged."""
    enqueue_many([OutgoingMessage(topic="test.max", payload=n) for n in range(10)], using=using)
    with handling("test.max", write):
        run_worker(using, max_messages=7)
    statuses = list(OutboxMessage._base_manager.using(using).values_list("status", "attempts"))
    assert sorted(statuses) == [(Status.READY, 0)] * 3 + [(Status.DONE, 1)] * 7


def test_excluded_queues_are_left_alone(using: str) -> None:
    """The others are found without being named."""
    from reliable_messaging.workqueue import QueueSelection

    for name in ("a", "b", "c"):
        enqueue("test.queues", name, queue=name, using=using)
    with handling("test.queues", write):
        run_worker(using, selection=QueueSelection(exclude=("b",)))
    assert effects(using) == ["a", "c"]


def test_delete_on_ack_leaves_no_row(using: str) -> None:
    """OUTBOX_RETENTION = 0, for atomic and non-atomic handlers."""
    enqueue("test.gone", 1, using=using)
    enqueue("test.loose.gone", 2, using=using)
    with override_settings(RELIABLE_MESSAGING={"OUTBOX_RETENTION": 0}):
        with handling("test.gone", write), handling("test.loose.gone", write, atomic=False):
            run_worker(using)
    assert effects(using) == ["1", "2"]
    assert not OutboxMessage._base_manager.using(using).exists()


def test_a_crash_is_told_with_its_budget_and_the_worker(using: str, caplog: pytest.LogCaptureFixture) -> None:
    """Which budget pays, how much of it is left, and who died; how long that took, nobody knows."""
    enqueue("test.crashed", using=using)
    dead_worker = uuid7()
    queue = outbox.queue.using(using, worker_id=dead_worker)
    (message,) = queue.claim(lease=1)
    rows = OutboxMessage._base_manager.using(using)
    rows.update(leased_until=message.claimed_at, crashes=1)
    with caplog.at_level(logging.INFO, logger="reliable_messaging"):
        outbox.queue.using(using).reap()
    (line,) = [r.getMessage() for r in caplog.records if r.getMessage().startswith("message retrying")]
    limit = get_settings().MAX_CRASHES
    assert f"attempt=1 charged=crash crashes=2/{limit} worker={dead_worker} error=" in line
    assert "duration" not in line
