"""What a wake-up does to a worker's looks and waits, whoever has sent it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from reliable_messaging import Message, OutgoingMessage, Retry, enqueue, enqueue_many
from reliable_messaging.workers import OutboxWorker, WorkerOptions, rhythm
from reliable_messaging.workers.claiming import Claiming
from reliable_messaging.workers.lookout import Lookout
from tests.listening import SELDOM
from tests.workers import eventually, handling

TOPIC = "test.rhythm"


@contextmanager
def ticking(using: str, **options: Any) -> Iterator[OutboxWorker]:
    """A worker whose turns the test takes, and which nobody but the test wakes. It does not poll again."""
    given = {"poll_min": SELDOM, "poll_max": SELDOM, "grace": timedelta(seconds=5), "wakeup": False}
    worker = OutboxWorker(WorkerOptions(database=using, **{**given, **options}))
    worker.start()
    try:
        yield worker
    finally:
        worker.shut_down()
        worker.waiter.close()


def test_a_worker_looks_when_its_own_retry_is_due(using: str) -> None:
    """It has looked before, and nobody wakes it for what it has put off itself."""
    go = threading.Event()

    def fail(message: Message) -> None:
        go.wait(20)
        raise Retry(after=2)

    enqueue(TOPIC, using=using)
    with handling(TOPIC, fail, atomic=False), ticking(using, poll_min=timedelta(seconds=0.1)) as worker:
        worker.turn()
        worker._lookout.look_at = time.monotonic() + 60  # the handler took long, and looks have become seldom
        go.set()
        eventually(lambda: worker.turn() >= 0 and not len(worker.flights))
        assert worker.turn() <= 2


def test_retries_at_once_are_no_busy_loop(using: str) -> None:
    """However soon what this worker puts off falls due, a look is one POLL_MIN away."""
    with ticking(using) as worker:
        worker.turn()
        worker._lookout.expect(timedelta(0))
        assert worker._rhythm.wait_seconds(room=lambda: 1) > SELDOM.total_seconds() / 2


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks may follow each other as fast as the test is."""
    monkeypatch.setattr(rhythm, "LEAST_PAUSE", 0.0)
    monkeypatch.setattr(rhythm, "COSTS_BETWEEN", 0)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many were wanted, claim by claim."""
    wanted: list[int] = []
    real = Claiming.exchange

    def exchange(self: Claiming, room: int) -> None:
        wanted.append(room)
        real(self, room)

    monkeypatch.setattr(Claiming, "exchange", exchange)
    return wanted


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moments: list[float] = []
    real = Lookout.look

    def look(self: Lookout) -> None:
        moments.append(time.monotonic())
        real(self)

    monkeypatch.setattr(Lookout, "look", look)
    return moments


def test_a_wake_up_whose_look_fails_is_not_forgotten(
    using: str, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database was away just then: the next turn looks, and not the next poll."""
    with ticking(using) as worker:
        worker.turn()
        with monkeypatch.context() as patch:
            patch.setattr(worker._lookout, "look", lambda: 1 / 0)
            worker._rhythm.wake_up()
            worker._rhythm.may_guess()  # there is nothing to guess from
            with pytest.raises(ZeroDivisionError):
                worker._rhythm.look_if_due()
        assert worker._rhythm.wait_seconds(room=lambda: 1) == 0


def run_one(worker: OutboxWorker, using: str, **options: Any) -> None:
    """Wake the worker for one message, and let it finish."""
    enqueue(TOPIC, using=using, **options)
    worker._rhythm.wake_up()
    for _ in range(3):
        worker.turn()
        eventually(lambda: not worker.flights.active)


def test_a_woken_worker_looks_at_once(using: str, eager: None) -> None:
    """It knew no queue, was to poll in minutes, and has claimed the message within one turn."""
    with ticking(using) as worker, handling(TOPIC, lambda message: None):
        assert worker.turn() > 60
        enqueue(TOPIC, using=using)
        assert worker.turn() > 60
        worker._rhythm.wake_up()
        worker.turn()
        assert worker.claimed == 1


def test_a_guess_takes_no_more_than_can_begin_at_once(using: str, eager: None, claims: list[int]) -> None:
    """Woken, a worker claims where there was work before, and looks then: what is more urgent must not
    wait behind a whole batch."""
    with ticking(using, concurrency=2) as worker, handling(TOPIC, lambda message: None):
        run_one(worker, using)
        enqueue_many([OutgoingMessage(topic=TOPIC) for _ in range(10)], using=using)
        claims.clear()
        worker._rhythm.wake_up()
        worker.turn()
        assert claims[0] == 2
        assert len(claims) == 2  # and then it has looked


def test_a_right_guess_puts_the_look_off(using: str, eager: None, looks: list[float]) -> None:
    """It would keep the handler from starting."""
    with ticking(using) as worker, handling(TOPIC, lambda message: None):
        run_one(worker, using)
        looks.clear()
        run_one(worker, using)
        assert worker.claimed == 2
        assert not looks


def test_right_guesses_do_not_put_it_off_for_ever(using: str, eager: None, looks: list[float]) -> None:
    """Messages of other lanes are waiting: the look comes one POLL_MIN after the first of them."""
    with ticking(using, poll_min=timedelta(seconds=0.2)) as worker, handling(TOPIC, lambda message: None):
        run_one(worker, using)
        looks.clear()
        worker._lookout.look_at = math.inf  # no poll of its own
        began = time.monotonic()
        while not looks:
            assert time.monotonic() < began + 20
            run_one(worker, using)


def test_a_wrong_guess_looks_at_once(using: str, eager: None) -> None:
    """The message is in another lane than the last one."""
    with ticking(using) as worker, handling(TOPIC, lambda message: None):
        run_one(worker, using)
        enqueue(TOPIC, using=using, priority=1)
        worker._rhythm.wake_up()
        worker.turn()
        assert worker.claimed == 2


def test_many_wake_ups_are_few_looks(using: str, looks: list[float]) -> None:
    """A hundred producers must not keep a worker looking."""
    with ticking(using) as worker:
        began = time.monotonic()
        while time.monotonic() < began + 0.5:
            worker._rhythm.wake_up()
            worker.waiter.wait(min(0.001, worker.turn()))
        assert 2 < len(looks) <= 0.5 / rhythm.LEAST_PAUSE + 2


def test_a_worker_that_has_enough_to_do_takes_no_notice(using: str, eager: None, looks: list[float]) -> None:
    """It knows where there is more, and has no room for it: it neither looks nor spins."""
    go = threading.Event()
    enqueue_many([OutgoingMessage(topic=TOPIC) for _ in range(40)], using=using)
    with ticking(using, concurrency=1, batch_size=4) as worker:
        with handling(TOPIC, lambda message: go.wait(20), atomic=False):
            while not worker.turn():
                assert worker.claimed < 40
            assert worker._lookout.lanes
            looks.clear()
            worker._rhythm.wake_up()
            assert worker.turn() > 1
            assert not looks
            go.set()


def asked_by_a_look(using: str, *, alert: bool) -> list[str]:
    """The statements of a look that is no worker's first: that one cleans up as well."""
    worker = OutboxWorker(WorkerOptions(database=using, poll_max=timedelta(0)))
    worker.waiter.close()
    worker._lookout.look()
    if alert:
        worker._lookout.stay_alert(60)
    with CaptureQueriesContext(connections[using]) as queries:
        worker._lookout.look()
    return [query["sql"] for query in queries]


def test_an_idle_look_is_one_transaction(using: str) -> None:
    """Which queues there are, and what is due in them: an idle worker asks little else. On SQLite none: it
    would be a writer's, and keep the others out."""
    asked = asked_by_a_look(using, alert=False)
    begun = [sql for sql in asked if sql.startswith("BEGIN")]
    if connections[using].features.has_select_for_update:
        assert (asked[0], asked[-1], len(begun), len(asked)) == ("BEGIN", "COMMIT", 1, 4)
    else:
        assert not begun


def test_a_look_that_somebody_waits_for_begins_no_transaction(using: str) -> None:
    """That would be two round trips before his message is seen."""
    assert not [sql for sql in asked_by_a_look(using, alert=True) if sql.startswith("BEGIN")]


def test_a_guess_tells_everybody_of_a_new_session(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first call of an async handler after an outage would be made on the dead one."""
    told: list[str] = []
    with ticking(using) as worker:
        monkeypatch.setattr(worker._pool, "follow", lambda session: told.append("threads"))
        monkeypatch.setattr(worker._coroutines, "follow", lambda session: told.append("coroutines"))
        worker._guess()
        assert sorted(told) == ["coroutines", "threads"]
