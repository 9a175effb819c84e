"""One chunk of atomic handlers: what commits, who is charged, what is run again."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction

from reliable_messaging import Message, OutgoingMessage, enqueue_many, outbox
from reliable_messaging.hooks import on_commit
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.storing import store
from reliable_messaging.workers.chunk import ChunkRunner
from reliable_messaging.workers.savepoint import Savepoint
from reliable_messaging.workqueue import Abandon, Release, Settlement
from tests.sessions import in_session
from tests.testapp.models import Effect, Line
from tests.workers import handling

GUILTY = 2


class Chunk:
    """Five claimed messages, run in one chunk by the given handler."""

    def __init__(self, using: str, work: Callable[[Message], object]) -> None:
        self.using = using
        self.runs: Counter[int] = Counter()
        self.landed: list[int] = []
        self.settlements: list[Settlement] = []
        enqueue_many([OutgoingMessage(topic="test.chunk", payload=n) for n in range(5)], using=using)
        self.queue = outbox.queue.using(using)
        self.messages = self.queue.claim(limit=5)
        self.work = work

    def handle(self, message: Message) -> object:
        self.runs[message.payload] += 1
        Effect.objects.using(self.using).create(name=str(message.payload))
        return self.work(message)

    def land(self, messages: Sequence[Message], settlements: Sequence[Settlement]) -> None:
        self.landed += [message.payload for message in messages]
        self.settlements += settlements

    def run(self, **options: Any) -> None:
        options = {"board": lambda message: message, "stopping": lambda: False, **options}
        with handling("test.chunk", self.handle):
            ChunkRunner(queue=self.queue, land=self.land, **options).run(self.messages)
        assert sorted(self.landed) == list(range(5)), "each lands exactly once"

    def effects(self) -> list[str]:
        return sorted(Effect.objects.using(self.using).values_list("name", flat=True))

    def statuses(self) -> list[int]:
        rows = OutboxMessage._base_manager.using(self.using).order_by("payload")
        return list(rows.values_list("status", flat=True))


def only_the_guilty_is_charged(chunk: Chunk) -> None:
    assert chunk.effects() == ["0", "1", "3", "4"]
    (settlement,) = chunk.settlements
    assert isinstance(settlement, Abandon)
    assert settlement.item.payload == GUILTY
    wanted = [Status.CLAIMED if n == GUILTY else Status.DONE for n in range(5)]
    assert chunk.statuses() == wanted


def test_all_commit_in_one_transaction(using: str) -> None:
    """Five effects and five acks, each handler run once, in one block."""
    blocks: set[object] = set()
    chunk = Chunk(using, lambda message: blocks.add(connections[using].atomic_blocks[0]))
    chunk.run()
    assert (chunk.settlements, len(blocks)) == ([], 1)
    assert chunk.statuses() == [Status.DONE] * 5
    assert set(chunk.runs.values()) == {1}


def test_an_exception_undoes_one_member(using: str) -> None:
    """Its savepoint is rolled back; nobody is run again."""

    def work(message: Message) -> None:
        if message.payload == GUILTY:
            raise ValueError

    chunk = Chunk(using, work)
    chunk.run()
    only_the_guilty_is_charged(chunk)
    assert set(chunk.runs.values()) == {1}


def test_what_members_enqueue_commits_with_them(using: str) -> None:
    """Thirty at once from each; those of one that fails are undone with it, and nobody is run again."""

    def work(message: Message) -> None:
        enqueue_many([OutgoingMessage(topic="test.later", payload=n) for n in range(30)], using=message.using)
        if message.payload == GUILTY:
            raise ValueError

    chunk = Chunk(using, work)
    chunk.run()
    assert len(chunk.settlements) == 1
    assert set(chunk.runs.values()) == {1}
    later = OutboxMessage._base_manager.using(using).filter(topic="test.later")
    assert later.count() == 4 * 30
    causes = {message.id for message in chunk.messages if message.payload != GUILTY}
    assert set(later.values_list("causation_id", flat=True)) == causes


def test_hooks_of_a_member_survive_the_failure_of_the_next(using: str) -> None:
    """Those that do not end a chunk: of the four that commit, and not of the one that is undone."""
    called: list[int] = []

    def work(message: Message) -> None:
        on_commit(using, called.append, message.payload)
        if message.payload == GUILTY:
            raise ValueError("guilty")

    chunk = Chunk(using, work)
    chunk.run()
    only_the_guilty_is_charged(chunk)
    assert called == [0, 1, 3, 4]
    assert set(chunk.runs.values()) == {1}


def test_a_lost_transaction_leaves_djangos_books_in_order(using: str) -> None:
    """A block that stays open for the next member is left in the books: else the end of the transaction
    would be taken for the end of that block."""
    connection = connections[using]
    with pytest.raises(RuntimeError), transaction.atomic(using=using):
        before = [*connection.atomic_blocks], [*connection.savepoint_ids]
        savepoint = Savepoint(connection)
        with savepoint:
            pass
        savepoint.forget()
        assert (connection.atomic_blocks, connection.savepoint_ids) == before
        raise RuntimeError
    assert not connection.in_atomic_block


def test_members_share_round_trips(using: str) -> None:
    """Where the driver takes several statements at once, one makes way for the next by one of them."""
    chunk = Chunk(using, lambda message: None)
    connection, statements = connections[using], []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        chunk.run()
    savepoints = [sql for sql in statements if "SAVEPOINT" in sql]
    assert len(savepoints) == (6 if connection.vendor == "postgresql" else 10)


def test_rows_that_the_database_refuses_harm_only_their_author(using: str) -> None:
    """The failed statement is undone to the member's savepoint, and the chunk goes on."""

    def work(message: Message) -> None:
        if message.payload == GUILTY:
            values = {"topic": "test.later", "payload": "1", "status": Status.CLAIMED}
            times = dict.fromkeys(("created_at", "due_at"), message.created_at)
            store([values | times] * 30, using)

    chunk = Chunk(using, work)
    chunk.run()
    only_the_guilty_is_charged(chunk)
    assert set(chunk.runs.values()) == {1}


def test_a_closed_connection_harms_only_who_closed_it(using: str) -> None:
    """The transaction is gone with the effects of earlier members: those are run again, alone,
    and only the one that does it again alone is charged."""

    def work(message: Message) -> None:
        if message.payload == GUILTY:
            connections[using].close()

    chunk = Chunk(using, work)
    chunk.run()
    only_the_guilty_is_charged(chunk)


def test_a_violation_found_at_commit_harms_only_its_author(using: str) -> None:
    """A foreign key to nothing, which PostgreSQL and SQLite check at COMMIT, after all handlers have
    returned."""

    def work(message: Message) -> None:
        if message.payload == GUILTY:
            Line.objects.using(using).create(order_id=4711)

    chunk = Chunk(using, work)
    chunk.run()
    only_the_guilty_is_charged(chunk)
    (settlement,) = chunk.settlements
    assert isinstance(settlement, Abandon)
    assert "IntegrityError" in settlement.error.error_class
    assert not Line.objects.using(using).exists()


def test_a_lost_claim_undoes_its_effect_and_no_other(using: str, caplog: pytest.LogCaptureFixture) -> None:
    """Taken by someone else while it ran: its ack matches nothing, so nothing of it is kept."""
    chunk = Chunk(using, lambda message: None)
    rows = OutboxMessage._base_manager.using(using).filter(pk=chunk.messages[GUILTY].id)
    rows.update(status=Status.READY, owner_token=None, leased_until=None)
    chunk.run()
    assert chunk.effects() == ["0", "1", "3", "4"]
    assert chunk.settlements == []
    lost = [r.rm["id"] for r in caplog.records if r.getMessage().startswith("claim lost")]  # type: ignore[attr-defined]
    assert lost == [chunk.messages[GUILTY].id]
    assert chunk.statuses()[GUILTY] == Status.READY


def test_a_failing_hook_makes_nobody_run_again(using: str) -> None:
    """The commit has happened: an error after it is only logged. And the messages have landed
    before the hook runs, so that no renewal takes them for lost meanwhile."""
    hooked: list[list[int]] = []

    def fail() -> None:
        hooked.append(list(chunk.landed))
        raise ValueError("after the commit")

    def work(message: Message) -> None:
        if message.payload == GUILTY:
            transaction.on_commit(fail, using=using)

    chunk = Chunk(using, work)
    chunk.run()
    assert (chunk.settlements, hooked) == ([], [[0, 1, 2]])
    assert chunk.statuses() == [Status.DONE] * 5
    assert set(chunk.runs.values()) == {1}


def test_a_message_that_may_not_start_is_left_out(using: str) -> None:
    """Lost before its turn: not run, not acked, the others are."""
    chunk = Chunk(using, lambda message: None)
    chunk.run(board=lambda m: None if m.payload == GUILTY else m)
    assert chunk.settlements == []
    assert chunk.statuses()[GUILTY] == Status.CLAIMED
    assert chunk.runs[GUILTY] == 0


def test_what_is_not_started_when_told_to_stop_is_released(using: str) -> None:
    """What has run commits; the rest goes back, charged to nothing."""
    chunk = Chunk(using, lambda message: None)
    chunk.run(stopping=lambda: chunk.runs.total() >= 2)
    assert chunk.effects() == ["0", "1"]
    assert [type(s) for s in chunk.settlements] == [Release] * 3
    assert chunk.statuses()[:2] == [Status.DONE] * 2


def test_a_chunk_ends_after_its_time(using: str, monkeypatch: Any) -> None:
    """Slow members do not hold one transaction open for long: each of them gets its own."""
    monkeypatch.setattr("reliable_messaging.workers.chunk.CHUNK_SECONDS", -1)
    blocks: set[object] = set()
    chunk = Chunk(using, lambda message: blocks.add(connections[using].atomic_blocks[0]))
    chunk.run()
    assert len(blocks) == 5
    assert chunk.statuses() == [Status.DONE] * 5


def test_a_session_that_dies_between_two_members_is_nobodys_fault(using: str) -> None:
    """Found out when the next one's savepoint is made: all are run in a new session, charged with nothing."""
    chunk = Chunk(using, lambda message: None)
    killed: list[int] = []

    def board(message: Message) -> Message:
        if message.payload == 1 and not killed:
            killed.append(1)
            connections[using].connection.close()
        return message

    chunk.run(board=board)
    assert chunk.settlements == []
    assert chunk.statuses() == [Status.DONE] * 5
    assert chunk.effects() == ["0", "1", "2", "3", "4"]


def test_a_transaction_that_cannot_begin_is_raised(using: str, monkeypatch: Any) -> None:
    """Tried in a new session once; then it is the database, and no reason for a busy loop."""
    chunk = Chunk(using, lambda message: None)
    tries: list[int] = []

    def refuse(*args: Any, **options: Any) -> None:
        tries.append(1)
        raise OperationalError("away")

    monkeypatch.setattr(connections[using], "set_autocommit", refuse)
    with pytest.raises(OperationalError, match="away"):
        chunk.run(stopping=lambda: len(tries) > 10)
    assert 1 <= len(tries) <= 2
    assert chunk.runs.total() == 0


def test_the_own_error_of_who_broke_the_transaction_is_told(using: str) -> None:
    """It raised, and the transaction is gone too: the first is the reason that helps."""

    def work(message: Message) -> None:
        if message.payload == GUILTY:
            connections[using].close()
            raise ValueError("the reason that helps")

    chunk = Chunk(using, work)
    chunk.run()
    only_the_guilty_is_charged(chunk)
    (settlement,) = chunk.settlements
    assert isinstance(settlement, Abandon)
    assert settlement.error.message == "the reason that helps"


def test_a_hook_that_forks_makes_no_second_worker(using: str, tmp_path: Path) -> None:
    """The child would go on with the rest of the chunk, as its parent does."""
    began = tmp_path / "began"

    def fork() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside other threads
            child = os.fork()
        if child:
            os.waitpid(child, 0)

    def work(message: Message) -> None:
        with began.open("a") as file:
            file.write(f"{message.payload} ")
        if message.payload == GUILTY:
            transaction.on_commit(fork, using=using)

    chunk = Chunk(using, work)
    in_session(chunk.run).result(timeout=60)
    assert began.read_text().split() == ["0", "1", "2", "3", "4"]
    assert chunk.statuses() == [Status.DONE] * 5
