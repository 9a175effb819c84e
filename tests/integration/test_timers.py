"""Timers: a message to come, in the caller's transaction, that is made exactly once."""

from __future__ import annotations

import datetime as dt
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, transaction
from django.test import override_settings
from django.utils import timezone

from reliable_messaging import OutgoingMessage, clock, outbox, timers
from reliable_messaging.exceptions import (
    InvalidDueTime,
    InvalidId,
    InvalidMessage,
    InvalidName,
    InvalidPayload,
    NotInTransaction,
)
from reliable_messaging.models import Failure, OutboxMessage, Status, Timer
from reliable_messaging.workers import Scheduler, SchedulerOptions
from tests.factories import OutboxMessageFactory
from tests.sessions import in_session, together
from tests.testapp.models import Order

TOPIC = "test.timer"


def messages(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def all_timers(using: str) -> Any:
    return Timer._base_manager.using(using)


def fire(using: str) -> int:
    """What one scheduler makes of what is due now."""
    scheduler = Scheduler(SchedulerOptions(database=using, burst=True))
    try:
        while not scheduler.finished:
            scheduler.turn()
    finally:
        scheduler.waiter.close()
    return scheduler.fired


# Scheduling


def test_a_timer_becomes_a_message_when_it_is_due(using: str) -> None:
    """Not before; then with all that it carries, its own id, and its due time as the message's."""
    timer = timers.schedule(
        TOPIC,
        {"a": 1},
        delay=60,
        queue="mail",
        priority=1,
        expires_in=30,
        max_attempts=7,
        correlation_id="c",
        headers={"h": 1},
        using=using,
    )
    assert fire(using) == 0
    with clock.travel(timedelta(seconds=61)):
        assert fire(using) == 1
    message = messages(using).get()
    assert message.pk == timer.pk
    assert (message.topic, message.payload, message.headers) == (TOPIC, '{"a":1}', {"h": 1})
    assert (message.queue, message.priority, message.max_attempts) == ("mail", 1, 7)
    assert (message.correlation_id, message.status) == ("c", Status.READY)
    assert message.due_at == timer.due_at
    assert message.expires_at == timer.due_at + timedelta(seconds=30)
    timer.refresh_from_db()
    assert (timer.status, timer.attempts) == (Status.DONE, 1)
    assert timer.finished_at is not None


def test_it_lives_and_dies_with_the_transaction(using: str) -> None:
    """Rolled back, it was never there; nobody sees it before the commit."""
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=using):
        timers.schedule(TOPIC, delay=1, using=using)
        1 / 0
    assert not all_timers(using).exists()
    with transaction.atomic(using=using):
        Order.objects.using(using).create(number=1)
        timers.schedule(TOPIC, delay=0, using=using)
    assert fire(using) == 1


def test_the_times_of_a_timer_are_known(using: str) -> None:
    """By the database's clock, also where that works them out."""
    timer = timers.schedule(TOPIC, delay=60, using=using)
    assert timer.due_at - timer.created_at == timedelta(seconds=60)
    moment = timezone.now() + timedelta(days=1)
    assert timers.schedule(TOPIC, due_at=moment, using=using).due_at == moment


def test_what_a_handler_schedules_inherits_its_correlation(using: str) -> None:
    """As a message that it enqueues."""
    from reliable_messaging.message import current_message
    from tests.factories import MessageFactory

    parent = MessageFactory(correlation_id="order-1")
    reset = current_message.set(parent)
    try:
        timer = timers.schedule(TOPIC, delay=1, using=using)
    finally:
        current_message.reset(reset)
    assert (timer.correlation_id, timer.causation_id) == ("order-1", parent.id)


def test_async_code_schedules_too(using: str) -> None:
    """Alone in its transaction."""

    async def main() -> Timer:
        return await timers.aschedule(TOPIC, delay=1, using=using)

    assert async_to_sync(main)().pk == all_timers(using).get().pk


# Names


def test_a_name_makes_it_unique_while_it_waits(using: str) -> None:
    """Scheduling again moves it, and all that it carries; once fired, the name is free."""
    first = timers.schedule(TOPIC, {"n": 1}, delay=60, name="reminder", using=using)
    again = timers.schedule("test.other", {"n": 2}, delay=600, name="reminder", priority=1, using=using)
    assert again.pk == first.pk
    timer = all_timers(using).get()
    assert (timer.topic, timer.payload, timer.priority) == ("test.other", '{"n":2}', 1)
    assert timedelta(seconds=590) < timer.due_at - clock.read(using) <= timedelta(seconds=600)
    with clock.travel(timedelta(seconds=601)):
        assert fire(using) == 1
    assert timers.schedule(TOPIC, delay=60, name="reminder", using=using).pk != first.pk


def test_names_are_compared_byte_for_byte(using: str) -> None:
    """'a', 'A' and 'a ' are three timers."""
    for name in ("a", "A", "a "):
        timers.schedule(TOPIC, delay=60, name=name, using=using)
    assert all_timers(using).count() == 3


def test_of_many_who_schedule_one_name_there_is_one(using: str) -> None:
    """Eight sessions at once: one timer, and no error."""

    def schedule() -> object:
        return timers.schedule(TOPIC, delay=60, name="reminder", using=using).pk

    assert len(set(together([schedule] * 8))) == 1
    assert all_timers(using).filter(status=Status.READY).count() == 1


def test_a_timer_that_fires_while_it_is_moved_is_another(row_locking: str) -> None:
    """The one that fires keeps what it has; the new one is not lost."""
    timers.schedule(TOPIC, {"n": 1}, delay=0, name="reminder", using=row_locking)
    with transaction.atomic(using=row_locking):
        (due,) = Timer._base_manager.using(row_locking).select_for_update()
        moved = in_session(
            lambda: timers.schedule(TOPIC, {"n": 2}, delay=60, name="reminder", using=row_locking).pk
        )
        timers.queue.using(row_locking).cancel([due.pk])  # as if it had fired just then
    assert moved.result(timeout=20) != due.pk
    assert all_timers(row_locking).get(status=Status.READY).payload == '{"n":2}'


# Many


def test_many_are_scheduled_together_or_not_at_all(using: str) -> None:
    """One bad one of them: none is stored, and the error says which."""
    good = OutgoingMessage(topic=TOPIC, delay=1)
    with pytest.raises(InvalidDueTime, match="Message 2 of 2: Give delay or due_at"):
        timers.schedule_many([good, OutgoingMessage(topic=TOPIC)], using=using)
    with pytest.raises(InvalidMessage, match="takes OutgoingMessage values"):
        timers.schedule_many([{"topic": TOPIC}], using=using)  # type: ignore[list-item]
    assert not all_timers(using).exists()
    assert timers.schedule_many([], using=using) == []


def test_many_can_be_spread_over_time(using: str) -> None:
    """Evenly, from the due time on."""
    made = timers.schedule_many(
        [OutgoingMessage(topic=TOPIC, payload=n, delay=60) for n in range(4)], spread=40, using=using
    )
    due = [all_timers(using).get(pk=timer.pk).due_at for timer in made]
    assert [(moment - due[0]).total_seconds() for moment in due] == [0, 10, 20, 30]
    assert [timer.due_at for timer in made] == due


def test_ten_thousand_due_at_once_are_ten_thousand_messages(using: str) -> None:
    """Two schedulers at once share them; none is doubled, none is missed."""
    count = 10_000
    timers.schedule_many(
        [OutgoingMessage(topic=TOPIC, payload=n, delay=0) for n in range(count)], using=using
    )
    fired = together([lambda: fire(using)] * 2)
    assert sum(fired) == count
    payloads = messages(using).values_list("payload", flat=True)
    assert sorted(map(int, payloads)) == list(range(count))
    assert not all_timers(using).exclude(status=Status.DONE).exists()


# Cancelling and moving


def test_a_timer_can_be_cancelled(using: str) -> None:
    """By its id, as a value or a text, or its name; the answer says whether it still waited."""
    timer = timers.schedule(TOPIC, delay=0, using=using)
    assert timers.cancel(timer.pk, using=using) is True
    assert timers.cancel(timer.pk, using=using) is False
    other = timers.schedule(TOPIC, delay=0, using=using)
    assert timers.cancel(str(other.pk), using=using) is True
    timers.schedule(TOPIC, delay=0, name="reminder", using=using)
    assert timers.cancel("reminder", using=using) is True
    assert timers.cancel("reminder", using=using) is False
    assert timers.cancel(uuid4(), using=using) is False
    assert fire(using) == 0
    assert not messages(using).exists()


def test_what_has_fired_cannot_be_cancelled(using: str) -> None:
    """The answer tells; the message can be cancelled by the same id."""
    timer = timers.schedule(TOPIC, delay=0, using=using)
    assert fire(using) == 1
    assert timers.cancel(timer.pk, using=using) is False
    assert messages(using).get().status == Status.READY


def test_of_cancelling_and_firing_exactly_one_wins(using: str) -> None:
    """Many times at the same moment: there is a message if and only if the answer was False."""
    for _ in range(20):
        timer = timers.schedule(TOPIC, delay=0, using=using)
        cancelled, _ = together(
            [lambda timer=timer: timers.cancel(timer.pk, using=using), lambda: fire(using)]
        )
        fire(using)  # one that was locked just then is skipped
        assert messages(using).filter(pk=timer.pk).exists() is not cancelled


def test_a_timer_can_be_moved(using: str) -> None:
    """To sooner or later, until it has fired."""
    timer = timers.schedule(TOPIC, delay=60, name="reminder", using=using)
    assert timers.reschedule("reminder", delay=600, using=using) is True
    with clock.travel(timedelta(seconds=61)):
        assert fire(using) == 0
    assert timers.reschedule(timer.pk, due_at=timezone.now() - timedelta(seconds=1), using=using) is True
    assert fire(using) == 1
    assert timers.reschedule(timer.pk, delay=1, using=using) is False
    assert timers.reschedule("reminder", delay=1, using=using) is False


# Retention, suspects


def test_without_retention_a_fired_timer_is_gone(using: str, settings: Any) -> None:
    """Its message is its history."""
    given = {**settings.RELIABLE_MESSAGING, "TIMER_RETENTION": 0}
    with override_settings(RELIABLE_MESSAGING=given):
        timers.schedule(TOPIC, delay=0, using=using)
        assert fire(using) == 1
    assert not all_timers(using).exists()
    assert messages(using).count() == 1


def test_what_somebodys_own_processor_died_over_fires_too(using: str) -> None:
    """A claim that nobody settled is reaped; the suspect is nothing to be afraid of here."""
    timers.schedule(TOPIC, delay=0, using=using)
    assert len(timers.queue.using(using).claim(lease=1)) == 1
    assert fire(using) == 0
    with clock.travel(timedelta(seconds=2)):
        assert fire(using) == 1


def test_a_timer_that_has_its_message_makes_no_second_one(using: str) -> None:
    """Requeued by hand, or made by somebody's own processor: it is done, and holds up no others."""
    timer = timers.schedule(TOPIC, delay=0, using=using)
    assert fire(using) == 1
    all_timers(using).filter(pk=timer.pk).update(status=Status.READY, finished_at=None)
    timers.schedule(TOPIC, delay=0, using=using)
    assert fire(using) == 2
    assert messages(using).count() == 2


def test_purging_timers_keeps_what_is_known_of_their_messages(using: str) -> None:
    """A message has the id of its timer, and its failures are found by it."""
    timers.schedule(TOPIC, delay=0, using=using)
    assert fire(using) == 1
    outbox.queue.using(using).fail(outbox.queue.using(using).claim(), "broken")
    with clock.travel(timedelta(days=30)):
        assert timers.queue.using(using).purge() == 1
    assert Failure._base_manager.using(using).count() == 1


def test_one_that_cannot_become_a_message_holds_up_no_others(using: str) -> None:
    """It goes dead, with the reason, and can be requeued."""
    made = timers.schedule_many(
        [OutgoingMessage(topic=TOPIC, payload=n, delay=0) for n in range(5)], using=using
    )
    OutboxMessageFactory.on(using, pk=made[2].pk)  # in its place
    assert fire(using) == 4
    poison = all_timers(using).get(pk=made[2].pk)
    assert (poison.status, "IntegrityError" in poison.last_error) == (Status.DEAD, True)
    assert all_timers(using).filter(status=Status.DONE).count() == 4


def test_large_ones_are_scheduled_and_fired(using: str) -> None:
    """More than a server takes as one statement: MariaDB's default limit is 16 MiB."""
    wanted = [OutgoingMessage(topic=TOPIC, payload="x" * 100_000, delay=0) for _ in range(200)]
    timers.schedule_many(wanted, using=using)
    assert fire(using) == 200


def test_a_deadlock_reaches_nobody_who_has_no_transaction(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On MariaDB scheduling by name may be the victim; nothing of it was kept, so it is run again."""
    victims = []

    def store_once(*args: Any) -> Any:
        if not victims:
            victims.append(1)
            raise OperationalError(1213, "Deadlock found")
        return real(*args)

    real = timers.store_once
    monkeypatch.setattr(timers, "store_once", store_once)
    timers.schedule(TOPIC, delay=60, name="reminder", using=using)
    assert victims
    victims.clear()
    with pytest.raises(OperationalError), transaction.atomic(using=using):
        timers.schedule(TOPIC, delay=60, name="reminder", using=using)


def test_fire_all_due_waits_for_nobody(row_locking: str) -> None:
    """What somebody has locked is left; suspects fire too."""
    timers.schedule(TOPIC, delay=0, using=row_locking)
    with transaction.atomic(using=row_locking):
        list(all_timers(row_locking).select_for_update())
        assert in_session(lambda: timers.fire_all_due(using=row_locking)).result(timeout=20) == 0
    all_timers(row_locking).update(crashes=1)
    assert timers.fire_all_due(using=row_locking) == 1


# Refusals


BAD = {
    "no time": ({"delay": None}, InvalidDueTime, "Give delay or due_at: when is the timer due"),
    "two times": ({"due_at": timezone.now()}, InvalidDueTime, "not both"),
    "naive": ({"delay": None, "due_at": dt.datetime(2030, 1, 1)}, InvalidDueTime, "time zone"),
    "negative": ({"delay": -1}, InvalidDueTime, "negative"),
    "no topic": ({"topic": ""}, InvalidName, "empty"),
    "no JSON": ({"payload": object()}, InvalidPayload, "JSON"),
    "empty name": ({"name": ""}, InvalidName, "timer's name is empty"),
    "long name": ({"name": "x" * 201}, InvalidName, "200 are allowed"),
    "lives for nothing": ({"expires_in": 0}, InvalidDueTime, "positive"),
    "stream": ({"stream": "a"}, InvalidMessage, "not supported yet"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_before_anything_is_written(using: str, case: str) -> None:
    """When it is scheduled, and not when it is due; the transaction stays usable."""
    options, error, words = BAD[case]
    with transaction.atomic(using=using):
        with pytest.raises(error, match=words):
            timers.schedule(**{"topic": TOPIC, "delay": 1, "using": using, **options})
        Order.objects.using(using).create(number=1)
    assert not all_timers(using).exists()
    assert Order.objects.using(using).count() == 1


@pytest.mark.parametrize("times", [{}, {"delay": 1, "due_at": timezone.now()}])
def test_a_move_needs_one_time(using: str, times: dict[str, Any]) -> None:
    """Exactly one."""
    with pytest.raises(InvalidDueTime, match="Give delay or due_at"):
        timers.reschedule("reminder", using=using, **times)


@pytest.mark.parametrize("what", [None, 7, b"reminder"])
def test_what_is_no_timer_is_refused(using: str, what: Any) -> None:
    """False would look as if it had fired."""
    with pytest.raises(InvalidId, match="neither the id nor the name of a timer"):
        timers.cancel(what, using=using)


def test_require_atomic_holds_for_timers(using: str, settings: Any) -> None:
    """A timer for a change that is not saved would be as wrong as a message."""
    with override_settings(RELIABLE_MESSAGING={**settings.RELIABLE_MESSAGING, "REQUIRE_ATOMIC": True}):
        with pytest.raises(NotInTransaction):
            timers.schedule(TOPIC, delay=1, using=using)
