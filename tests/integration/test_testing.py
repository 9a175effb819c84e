"""run_due: the helper for other projects' tests."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import connections, transaction
from django.test import TestCase

from reliable_messaging import DeadLetter, Message, aenqueue, clock, enqueue
from reliable_messaging.dispatch import Failed, run_to_end
from reliable_messaging.exceptions import ReliableMessagingError
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.registry import DEAD_LETTER_PREFIX, Handler
from reliable_messaging.session import discard
from reliable_messaging.testing import run_due
from tests.factories import MessageFactory
from tests.testapp.models import Effect
from tests.workers import handling


def write(message: Message) -> None:
    Effect.objects.create(name=str(message.payload))


class RunDueTests(TestCase):
    """Inside a TestCase, on its own connection."""

    def test_it_runs_what_is_due_and_what_that_enqueues(self) -> None:
        """In order, until nothing is due; what is delayed stays."""

        def work(message: Message) -> None:
            write(message)
            enqueue("test.child", "child")

        enqueue("test.parent", "parent")
        enqueue("test.parent", "later", delay=60)
        with handling("test.parent", work), handling("test.child", write, atomic=False):
            assert [message.topic for message in run_due()] == ["test.parent", "test.child"]
        assert sorted(Effect.objects.values_list("name", flat=True)) == ["child", "parent"]

    def test_retries_budgets_and_dead_letters_are_the_real_ones(self) -> None:
        """Twice it fails, and leaves nothing behind; then it is dead, and the callback is told."""
        told: list[DeadLetter] = []

        def work(message: Message) -> None:
            write(message)
            raise ValueError("no")

        row = enqueue("test.doomed", 1, max_attempts=2)
        with handling("test.doomed", work), handling(DEAD_LETTER_PREFIX + "test.doomed", told.append):
            assert len(run_due()) == 1
            assert run_due() == []
            with clock.travel(timedelta(minutes=1)):
                assert len(run_due()) == 2
        row.refresh_from_db()
        assert (row.status, row.failures) == (Status.DEAD, 2)
        assert not Effect.objects.exists()
        assert [letter.error for letter in told] == ["ValueError: no"]

    def test_async_handlers_are_run_too(self) -> None:
        """On this connection, whose transaction no other could see; what they enqueue is run as well."""

        async def work(message: Message) -> dict[str, int]:
            await Effect.objects.acreate(name="awaited")
            await aenqueue("test.child", "child")
            return {"n": 1}

        row = enqueue("test.awaited", correlation_id="order 7")
        with handling("test.awaited", work, atomic=False), handling("test.child", write):
            assert [message.topic for message in run_due()] == ["test.awaited", "test.child"]
        assert sorted(Effect.objects.values_list("name", flat=True)) == ["awaited", "child"]
        row.refresh_from_db()
        assert (row.status, row.result) == (Status.DONE, '{"n":1}')
        assert OutboxMessage.objects.get(topic="test.child").correlation_id == "order 7"

    def test_the_failures_of_async_handlers_are_the_real_ones(self) -> None:
        """Each is charged to its message; SystemExit ends no test."""

        async def work(message: Message) -> None:
            if message.payload == "exit":
                raise SystemExit
            raise ValueError("its own")

        rows = {name: enqueue("test.awaited", name, max_attempts=1) for name in ("exit", "raise")}
        with handling("test.awaited", work, atomic=False):
            run_due()
        for name, words in (("exit", "SystemExit"), ("raise", "its own")):
            rows[name].refresh_from_db()
            assert rows[name].status == Status.DEAD
            assert words in rows[name].last_error

    def test_messages_that_never_end_are_noticed(self) -> None:
        """A handler that enqueues itself is stopped at the limit, with a word on why."""

        def work(message: Message) -> None:
            enqueue("test.again")

        enqueue("test.again")
        with handling("test.again", work), pytest.raises(AssertionError, match="enqueue each other"):
            run_due(limit=20)

    def test_a_worker_inside_a_transaction_is_refused(self) -> None:
        """It could not see what the test wrote: said at once, with what to use instead."""
        with pytest.raises(ReliableMessagingError, match="run_due"):
            call_command("run_outbox_worker", "--burst")


def test_async_tests_can_use_it(using: str) -> None:
    """From inside a running event loop, by way of sync_to_async."""

    async def work(message: Message) -> None:
        await Effect.objects.using(using).acreate(name="awaited")

    row = enqueue("test.awaited", using=using)

    def run() -> None:
        try:
            run_due(using=using)
        finally:
            connections.close_all()

    with handling("test.awaited", work, atomic=False):
        asyncio.run(sync_to_async(run)())
    row.refresh_from_db()
    assert row.status == Status.DONE
    assert Effect.objects.using(using).count() == 1


def test_async_handlers_leave_no_context_behind(using: str) -> None:
    """What a test enqueues afterwards does not come from them."""

    async def work(message: Message) -> None: ...

    enqueue("test.awaited", using=using, correlation_id="order 7")
    with handling("test.awaited", work, atomic=False):
        run_due(using=using)
    assert enqueue("test.after", using=using).causation_id is None


@pytest.mark.parametrize(("error", "words"), [(None, "TransactionLeftOpen"), (ValueError("own"), "own")])
def test_an_async_handler_that_leaves_a_transaction_open_has_failed(
    using: str, error: Exception | None, words: str
) -> None:
    """As in a worker; an error of its own goes first."""

    async def work(message: Message) -> None:
        await sync_to_async(transaction.atomic(using=using).__enter__)()
        await Effect.objects.using(using).acreate(name="left")
        if error is not None:
            raise error

    try:
        outcome = run_to_end(MessageFactory(), Handler(topic="x", function=work, atomic=False))
    finally:
        discard(connections[using])
    assert isinstance(outcome, Failed)
    assert words in str(outcome.error)


def test_it_works_outside_a_test_case_too(using: str) -> None:
    """On any database, with real commits; suspects and expired messages included."""
    enqueue("test.due", 1, using=using)
    enqueue("test.due", 2, using=using)
    enqueue("test.due", 3, expires_in=1, using=using)
    OutboxMessage._base_manager.using(using).filter(payload="2").update(crashes=1)
    seen: list[int] = []
    with handling("test.due", lambda message: seen.append(message.payload)):
        with clock.travel(timedelta(seconds=5)), transaction.atomic(using=using):
            run_due()
    assert sorted(seen) == [1, 2]
