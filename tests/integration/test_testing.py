"""run_due: the helper for other projects' tests."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import transaction
from django.test import TestCase

from reliable_messaging import DeadLetter, Message, clock, enqueue
from reliable_messaging.exceptions import ReliableMessagingError
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.registry import DEAD_LETTER_PREFIX
from reliable_messaging.testing import run_due
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
