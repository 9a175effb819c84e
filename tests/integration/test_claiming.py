"""How a worker claims: not too much, not in a busy loop, and without losing what it was given."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.db import DatabaseError, OperationalError, connections, transaction
from django.test.utils import override_settings
from django.utils import timezone

from reliable_messaging import Message, OutgoingMessage, clock, enqueue, enqueue_many, outbox
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.workers import OutboxWorker, WorkerOptions
from reliable_messaging.workers.lookout import Lookout
from reliable_messaging.workers.maintenance import Maintenance
from reliable_messaging.workqueue import Ack, Horizon, Lane, claim, horizon, single_statement
from tests.factories import MessageFactory, OutboxMessageFactory
from tests.refusals import refuse_to_acknowledge
from tests.sessions import in_session
from tests.workers import eventually, handling, run_worker

MANY = 40
SHORT_PATIENCE = {
    "postgresql": "SET lock_timeout = '300ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
}


def rows(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


@contextmanager
def ticking(using: str, **options: Any) -> Iterator[OutboxWorker]:
    """A worker whose turns the test takes."""
    worker = OutboxWorker(WorkerOptions(database=using, **{"grace": timedelta(seconds=5), **options}))
    worker.start()
    try:
        yield worker
    finally:
        worker.shut_down()
        worker.waiter.close()


@contextmanager
def held(topic: str) -> Iterator[None]:
    """Handlers of the topic do not return before the end of the block."""
    go = threading.Event()
    with handling(topic, lambda message: go.wait(20), atomic=False):
        try:
            yield
        finally:
            go.set()


def test_a_worker_does_not_hoard(using: str) -> None:
    """While its threads are busy it claims no more: others could not do what it holds."""
    enqueue_many([OutgoingMessage(topic="test.held", payload=n) for n in range(MANY)], using=using)
    with ticking(using, concurrency=1, batch_size=4) as worker, held("test.held"):
        for _ in range(20):
            worker.turn()
        assert 0 < rows(using).filter(status=Status.CLAIMED).count() <= 8


def test_a_worker_that_has_all_there_is_waits(using: str) -> None:
    """The claim gave less than it asked for: the next look comes after a pause, not at once."""
    enqueue("test.held", using=using)
    with ticking(using, poll_min=timedelta(seconds=5)) as worker, held("test.held"):
        assert worker.turn() > 0
        assert worker.claimed == 1


def test_a_limit_is_never_exceeded(using: str) -> None:
    """--max-messages 3, with room for more: the fourth is left to others."""
    enqueue_many([OutgoingMessage(topic="test.held", payload=n) for n in range(MANY)], using=using)
    with ticking(using, max_messages=3) as worker, held("test.held"):
        for _ in range(5):
            worker.turn()
        assert rows(using).filter(status=Status.CLAIMED).count() == worker.claimed == 3
        assert not worker.finished, "three are still running"


def lose_the_answer(worker: OutboxWorker, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next claim commits, but the connection breaks before it says so."""
    real = getattr(worker.queue, verb)

    def claim(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(worker.queue, verb, real)
        real(*args, **options)
        raise OperationalError("lost connection during COMMIT")

    monkeypatch.setattr(worker.queue, verb, claim)


@pytest.mark.parametrize("suspect", [False, True])
def test_a_claim_whose_commit_was_not_answered_is_run(
    using: str, suspect: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It happened: nobody else would run these before their lease ends, and then as suspects."""
    enqueue("test.unanswered", using=using)
    rows(using).update(crashes=int(suspect))
    ran: list[Message] = []
    with handling("test.unanswered", ran.append, atomic=False), ticking(using, quarantine=suspect) as worker:
        lose_the_answer(worker, "claim_suspect" if suspect else "exchange", monkeypatch)
        with pytest.raises(OperationalError):
            worker.turn()
        assert rows(using).get().status == Status.CLAIMED
        worker.turn()
        eventually(lambda: bool(ran), seconds=5)
        worker.turn()
    assert len(ran) == 1
    stored = rows(using).get()
    assert (stored.status, stored.attempts, stored.crashes) == (Status.DONE, 1, int(suspect))


def test_a_claim_whose_commit_was_not_answered_is_released_at_the_end(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told to stop before it could ask what became of the claim: still nothing is charged."""
    enqueue("test.unanswered", using=using)
    ran: list[Message] = []
    with handling("test.unanswered", ran.append, atomic=False), ticking(using) as worker:
        lose_the_answer(worker, "exchange", monkeypatch)
        with pytest.raises(OperationalError):
            worker.turn()
    assert ran == []
    stored = rows(using).get()
    assert (stored.status, stored.crashes, stored.failures) == (Status.READY, 0, 0)


def test_a_commit_that_happens_late_is_found(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that waits for its standby: the connection broke, the worker asks and finds nothing, and
    only then do its rows become its own."""
    enqueue("test.unanswered", using=using)
    ran: list[Message] = []
    with handling("test.unanswered", ran.append, atomic=False), ticking(using) as worker:
        real, claims = worker.queue.exchange, []

        def unanswered(*args: Any, **options: Any) -> Any:
            claims.append(lambda: real(*args, **options))
            raise OperationalError("lost connection during COMMIT")

        monkeypatch.setattr(worker.queue, "exchange", unanswered)
        with pytest.raises(OperationalError):
            worker.turn()
        worker._claiming.recover_unanswered(now=True)
        claims[0]()
        worker._claiming.recover_unanswered(now=True)
        eventually(lambda: bool(ran), seconds=5)
        worker._claiming.recover_unanswered(now=True)
    assert len(ran) == 1
    stored = rows(using).get()
    assert (stored.status, stored.attempts, stored.crashes) == (Status.DONE, 1, 0)


def test_a_commit_that_never_happens_is_not_asked_about_for_ever(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a second, until its lease would have ended."""
    asked: list[object] = []
    with ticking(using, lease=timedelta(seconds=60)) as worker:
        monotonic = clock.monotonic
        monkeypatch.setattr(worker.queue, "held_by", lambda token: asked.append(token) or [])
        worker._claiming._begin()
        for later in (0.0, 0.5, 1.5, 2.0, 30.0, 61.0, 63.0):
            monkeypatch.setattr(clock, "monotonic", lambda later=later: monotonic() + later)
            worker._claiming.recover_unanswered()
    assert len(asked) == 4


def break_claims(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database refuses each claim, as a standby would."""

    def refuse(*args: Any, **options: Any) -> list[Any]:
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT nothing FROM nowhere")
        return []

    monkeypatch.setattr(claim, "claim_lanes", refuse)
    real = single_statement.exchange

    def refuse_claims(model: Any, alias: str, done: Any, claim: Any, **options: Any) -> Any:
        return real(model, alias, done, claim, **options) if claim is None else refuse()

    monkeypatch.setattr(single_statement, "exchange", refuse_claims)


def test_a_claim_that_fails_is_no_busy_loop(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error reaches the loop, which says so, waits and takes a new connection."""
    enqueue("test.effect", using=using)
    break_claims(using, monkeypatch)
    with ticking(using) as worker, pytest.raises(DatabaseError):
        worker.turn()


def test_a_claim_that_fails_keeps_nothing_from_being_settled(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are one transaction: what is finished is settled by itself, and the error is told."""
    enqueue("test.done", using=using)
    with handling("test.done", lambda message: None, atomic=False), ticking(using) as worker:
        worker.turn()
        eventually(lambda: len(worker.flights.landed()) == 1)
        enqueue("test.done", using=using)
        break_claims(using, monkeypatch)
        worker._lookout.look_at = 0
        with pytest.raises(DatabaseError):
            worker.turn()
        assert rows(using).filter(status=Status.DONE).count() == 1
        assert worker.flights.landed() == []


def test_a_row_that_somebody_has_locked_holds_up_no_other(row_locking: str) -> None:
    """A person at the console has looked at it FOR UPDATE: its neighbours are settled, others are claimed and
    run, and it is settled later."""
    enqueue_many([OutgoingMessage(topic="test.done", payload=n) for n in range(3)], using=row_locking)
    locked, unlock = threading.Event(), threading.Event()

    def lock() -> None:
        with transaction.atomic(using=row_locking):
            assert rows(row_locking).select_for_update().get(payload="1")
            locked.set()
            unlock.wait(30)

    with handling("test.done", lambda message: None, atomic=False), ticking(row_locking) as worker:
        with connections[row_locking].cursor() as cursor:
            cursor.execute(SHORT_PATIENCE[connections[row_locking].vendor])
        worker.turn()
        eventually(lambda: len(worker.flights.landed()) == 3)
        enqueue("test.done", 3, using=row_locking)
        holder = in_session(lock)
        locked.wait(30)
        worker._lookout.look_at = 0
        done = rows(row_locking).filter(status=Status.DONE)
        eventually(lambda: worker.turn() >= 0 and done.count() == 3)
        assert [settlement.item.payload for settlement in worker.flights.landed()] == [1]
        unlock.set()
        holder.result(timeout=30)
        eventually(lambda: worker.turn() >= 0 and not len(worker.flights))
    assert rows(row_locking).filter(status=Status.DONE).count() == 4


def test_a_settlement_that_cannot_be_written_stops_no_claim(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are one transaction, which is rolled back: the settlement goes its own way, and the next turn
    claims."""
    refuse_to_acknowledge("0", monkeypatch)
    enqueue("test.unwritable", 0, using=using)
    with handling("test.unwritable", lambda message: None, atomic=False), ticking(using) as worker:
        worker.turn()
        eventually(lambda: len(worker.flights.landed()) == 1)
        enqueue("test.unwritable", 1, using=using)
        worker._lookout.look_at = 0
        for _ in range(3):
            worker.turn()
        eventually(lambda: not worker.flights.active)
        assert worker.claimed == 2
    assert sorted(rows(using).values_list("payload", "status")) == [("0", Status.DEAD), ("1", Status.DONE)]


def test_an_observer_that_fails_takes_nothing_back(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either it is all rolled back, or what is committed is known: no claim is forgotten."""

    def refuse(alias: str, transitions: Any) -> None:
        raise RuntimeError("an observer")

    enqueue_many([OutgoingMessage(topic="test.x", payload=n) for n in range(2)], using=using)
    queue = outbox.queue.using(using, observer=refuse)
    (first,) = queue.exchange([], lanes=[Lane("default", 0)], limit=1).claimed
    try:
        claimed = queue.exchange([Ack(item=first)], lanes=[Lane("default", 0)], limit=1).claimed
    except RuntimeError:
        assert sorted(rows(using).values_list("status", flat=True)) == [Status.READY, Status.CLAIMED]
    else:
        assert [item.payload for item in claimed] == [1]
        assert rows(using).get(pk=first.id).status == Status.DONE


def test_what_commits_late_is_found_by_the_next_look(using: str) -> None:
    """Its due time is before the mark that claims have reached: the look begins at the start."""
    now = timezone.now() - timedelta(minutes=1)
    for seconds in (1, 2, 3):
        OutboxMessageFactory.on(using, topic="test.done", due_at=now + timedelta(seconds=seconds))
    with handling("test.done", lambda message: None, atomic=False), ticking(using, batch_size=2) as worker:
        worker.turn()
        late = OutboxMessageFactory.on(using, topic="test.done", due_at=now)
        (lane,) = worker._lookout.lanes
        assert lane.mark is not None
        assert lane.mark.due_at == now + timedelta(seconds=2)
        worker._lookout.look()
        (lane,) = worker._lookout.lanes
        assert lane.mark is not None
        assert lane.mark.due_at == late.due_at
        eventually(lambda: worker.turn() >= 0 and not rows(using).exclude(status=Status.DONE).exists())


def test_a_look_that_is_dear_comes_seldom(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an old snapshot open it walks over all that was ever claimed: a twentieth of the time, but no
    rest above POLL_MAX, while there is something to claim from; then half of the time."""
    queue = outbox.queue.using(using)
    monotonic = clock.monotonic

    def look(*args: Any, **options: Any) -> Horizon:
        monkeypatch.setattr(clock, "monotonic", lambda: monotonic() + 3)
        return Horizon(lanes=(Lane("default", 0),))

    monkeypatch.setattr(queue, "look", look)
    monkeypatch.setattr(queue, "discover_queues", lambda selection: ("default",))
    options = WorkerOptions(database=using, poll_max=timedelta(seconds=30))
    lookout = Lookout(queue=queue, options=options, before_reaping=lambda: None)
    lookout.look()
    assert 29 < lookout.due_at - clock.monotonic() < 31
    lookout.claimed([], wanted=1)
    assert 2 < lookout.due_at - clock.monotonic() < 5


def test_a_lane_is_due_in_the_night_when_clocks_are_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database has a zone of its own: by its wall clock the present is an hour before the due time."""
    berlin = ZoneInfo("Europe/Berlin")
    at = datetime(2026, 10, 25, 0, 59, 59, tzinfo=dt.timezone.utc).astimezone(berlin)
    now = datetime(2026, 10, 25, 1, 0, 1, tzinfo=dt.timezone.utc).astimezone(berlin)
    assert now < at
    monkeypatch.setattr(horizon, "_first_rows", lambda *_: [(horizon._Sight.LANE, "default", 0, at, now)])
    seen = outbox.queue.using("default").look(("default",))
    assert [lane.mark and lane.mark.due_at for lane in seen.lanes] == [at.astimezone(dt.timezone.utc)]
    assert seen.oldest == timedelta(seconds=2)


@pytest.mark.parametrize("fast", [True, False])
def test_a_handler_sees_times_in_utc_on_every_path(row_locking: str, fast: bool) -> None:
    """Whatever zone DATABASES has for the connection, where it may have one."""
    if not connections[row_locking].features.supports_timezones:
        pytest.skip("its times have no zone, and a check refuses TIME_ZONE")

    def claimed() -> Message:
        connection: Any = connections[row_locking]
        connection.settings_dict = {**connection.settings_dict, "TIME_ZONE": "Europe/Berlin"}
        enqueue("test.zone", using=row_locking)
        (message,) = outbox.queue.using(row_locking).claim()
        return message

    with override_settings(RELIABLE_MESSAGING={**settings.RELIABLE_MESSAGING, "FAST_PATH": fast}):
        message = in_session(claimed).result(timeout=30)
    moments = [message.created_at, message.due_at, message.claimed_at]
    assert [moment and moment.tzinfo for moment in moments] == [dt.timezone.utc] * 3
    assert message.due_at <= timezone.now() < message.due_at + timedelta(minutes=1)


def test_what_goes_wrong_after_the_commit_takes_nothing_back(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as too little memory for the rows: they are claimed by then, and must be asked for."""
    enqueue("test.effect", using=using)
    with ticking(using) as worker:
        real = worker.queue.exchange

        def exchange(*args: Any, **options: Any) -> Any:
            real(*args, **options)
            raise MemoryError

        monkeypatch.setattr(worker.queue, "exchange", exchange)
        with pytest.raises(MemoryError):
            worker.turn()
        monkeypatch.undo()
        eventually(lambda: worker.turn() >= 0 and not rows(using).exclude(status=Status.DONE).exists())
    assert rows(using).get().attempts == 1


def test_claims_in_between_do_not_make_it_ask_more_often(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a claim without an answer: once a second, whatever else goes on."""
    asked: list[object] = []
    with ticking(using) as worker:
        monkeypatch.setattr(worker.queue, "held_by", lambda token: asked.append(token) or [])
        worker._claiming._begin()
        for _ in range(5):
            worker._claiming.recover_unanswered()
            token, _began = worker._claiming._begin()
            del worker._claiming._unanswered[token]
        assert len(asked) == 1


def test_a_lease_is_counted_from_before_the_claim(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the answer was lost, and it is found out only later that it happened."""
    enqueue_many([OutgoingMessage(topic="test.held", payload=n) for n in range(2)], using=using)
    options = {"lease": timedelta(seconds=60), "max_messages": 1, "concurrency": 2}
    with ticking(using, **options) as worker, held("test.held"):
        worker._heartbeat.stop()
        real, monotonic = worker.queue.exchange, clock.monotonic

        def slowly(*args: Any, **options: Any) -> Any:
            monkeypatch.setattr(clock, "monotonic", lambda: monotonic() + 20)
            return real(*args, **options)

        monkeypatch.setattr(worker.queue, "exchange", slowly)
        worker.turn()
        eventually(lambda: worker.flights.has_overdue(20), seconds=5)
        assert not worker.flights.has_overdue(29)
        monkeypatch.setattr(worker.queue, "exchange", real)
        worker._claiming.claimed = 0
        lose_the_answer(worker, "exchange", monkeypatch)
        began = clock.monotonic()
        with pytest.raises(OperationalError):
            worker.turn()
        monkeypatch.setattr(clock, "monotonic", lambda: monotonic() + 70)
        worker._claiming.recover_unanswered(now=True)
        newest = max(flight.leased_at for flight in worker.flights._flights.values())
        assert began <= newest < began + 10


def test_a_worker_begins_nothing_on_an_ended_lease(using: str) -> None:
    """Its process was stopped, and goes on: by the worker's own lease, someone else may be at it."""
    worker = OutboxWorker(WorkerOptions(database=using, lease=timedelta(seconds=60)))
    worker.waiter.close()
    late, good = MessageFactory(), MessageFactory()
    worker.flights.take_off([late], leased_at=clock.monotonic() - 61)
    worker.flights.take_off([good], leased_at=clock.monotonic() - 59)
    boarded = [worker.flights.boarding(message, unfenced=True) for message in (late, good)]
    assert [found and found.id for found in boarded] == [None, good.id]


def test_what_falls_due_in_a_moment_is_no_reason_for_a_busy_loop(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However soon the next one is due, a look comes POLL_MIN after the last."""
    queue = outbox.queue.using(using)
    seen = Horizon(next_in=timedelta(microseconds=1))
    monkeypatch.setattr(queue, "look", lambda *args, **options: seen)
    options = WorkerOptions(database=using, poll_min=timedelta(seconds=0.5))
    lookout = Lookout(queue=queue, options=options, before_reaping=lambda: None)
    before = clock.monotonic()
    lookout.look()
    assert lookout.look_at - before >= 0.5


def test_a_purge_comes_round_once_in_an_interval(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at every look: it walks over all that is kept."""
    queue = outbox.queue.using(using)
    purges: list[object] = []

    def purge(after: object) -> tuple[int, None]:
        purges.append(after)
        return 0, None

    monkeypatch.setattr(queue, "purge_batch", purge)
    maintenance = Maintenance(queue=queue)
    for _ in range(3):
        maintenance.run(Horizon())
    assert len(purges) == 1


def test_a_burst_sees_a_queue_that_has_only_just_come_to_be(using: str) -> None:
    """A handler enqueues into it: when the burst ends, nothing is due."""

    def pass_on(message: Message) -> None:
        enqueue("test.second", queue="mail", using=using)

    ran: list[Message] = []
    enqueue("test.first", using=using)
    with handling("test.first", pass_on, atomic=False), handling("test.second", ran.append, atomic=False):
        run_worker(using)
    assert len(ran) == 1
