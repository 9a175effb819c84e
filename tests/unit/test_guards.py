"""Why a worker process must end at once, and why it need not."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from reliable_messaging import clock
from reliable_messaging.message import Message
from reliable_messaging.registry import Handler
from reliable_messaging.workers import OutboxWorker, WorkerOptions
from reliable_messaging.workers import watchdog as watchdog_module
from reliable_messaging.workers import worker as worker_module
from reliable_messaging.workers.flights import Flights
from reliable_messaging.workers.guards import Guards
from reliable_messaging.workers.runs import Runs
from reliable_messaging.workers.watchdog import Watchdog
from reliable_messaging.workqueue import Abandon, Release
from tests.factories import MessageFactory
from tests.workers import eventually

LEASE = 10.0


class Scene:
    """A worker's guards, with everything that they look at in a test's hands."""

    def __init__(self, *, one_writer: bool = False, lease: float = LEASE) -> None:
        self.flights = Flights(wake=lambda: None, stopping=lambda: False)
        self.runs = Runs()
        self.heartbeat: Any = SimpleNamespace(silent_for=0.0)
        self.holds_write_lock = False
        self.turn_began: float | None = None
        self.ends: list[str] = []
        guards = Guards(
            flights=self.flights,
            runs=self.runs,
            heartbeat=self.heartbeat,
            lease=lease,
            one_writer=one_writer,
            holds_write_lock=lambda: self.holds_write_lock,
            turn_began=lambda: self.turn_began,
        )
        self._watchdog = Watchdog(reasons=guards.reasons(), end_process=self.ends.append)

    def ended(self) -> bool:
        self.ends.clear()
        self._watchdog.check()
        return bool(self.ends)

    def take_off(self, *, leased_at: float) -> Message:
        message: Message = MessageFactory()
        self.flights.take_off([message], leased_at=leased_at)
        return message


def test_only_an_unfenced_handler_on_an_ended_lease_ends_the_process() -> None:
    """A non-atomic handler; not an atomic one, not while we hold the write lock, not in time."""
    scene, now = Scene(), time.monotonic()
    message = scene.take_off(leased_at=now - 60)
    assert not scene.ended()
    scene.flights.boarding(message, unfenced=False)
    assert not scene.ended()
    scene.flights.boarding(message, unfenced=True)
    scene.holds_write_lock = True
    assert not scene.ended()
    scene.holds_write_lock = False
    scene.flights.renewed([message], leased_at=now)
    assert not scene.ended()
    scene.flights.renewed([message], leased_at=now - 60)
    assert scene.ended()


def test_a_heartbeat_without_an_answer_ends_the_process() -> None:
    """After a whole lease, where there is a wire that can go dead; a file has none."""
    scene = Scene()
    scene.heartbeat.silent_for = LEASE - 1
    assert not scene.ended()
    scene.heartbeat.silent_for = LEASE + 1
    assert scene.ended()
    file = Scene(one_writer=True)
    file.heartbeat.silent_for = LEASE + 1
    assert not file.ended()


def test_a_turn_without_an_answer_ends_the_process() -> None:
    """After three leases: it may have to wait for somebody's lock."""
    scene = Scene()
    scene.turn_began = time.monotonic() - 2 * LEASE
    assert not scene.ended()
    scene.turn_began = time.monotonic() - 3 * LEASE - 1
    assert scene.ended()


def test_a_short_lease_does_not_make_a_turn_impatient() -> None:
    """Three leases of a second pass while somebody holds a lock for a moment."""
    scene = Scene(lease=1)
    scene.turn_began = time.monotonic() - 9
    assert not scene.ended()
    scene.turn_began = time.monotonic() - 11
    assert scene.ended()


def test_a_turn_that_has_ended_is_not_waited_for() -> None:
    """Between two turns the claiming thread sleeps, for as long as it likes."""
    scene = Scene()
    scene.turn_began = None
    assert not scene.ended()


def test_a_turn_waits_for_the_only_write_lock_as_long_as_it_takes() -> None:
    """A file has no wire that could go dead."""
    scene = Scene(one_writer=True)
    scene.turn_began = time.monotonic() - 3 * LEASE - 1
    assert not scene.ended()


@pytest.mark.parametrize(
    ("one_writer", "atomic", "ends"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_hung_handler_ends_the_process_only_with_the_write_lock(
    one_writer: bool, atomic: bool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its message is given up, to be settled by the claiming thread, and it is told to stop."""
    scene = Scene(one_writer=one_writer)
    message = scene.take_off(leased_at=time.monotonic())
    boarded = scene.flights.boarding(message, unfenced=not atomic)
    handler = Handler(topic=message.topic, function=lambda m: None, atomic=atomic)
    scene.runs.begin(message, handler)
    assert not scene.ended()
    assert boarded is not None
    assert not boarded.should_stop
    now = time.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now + 16 * 60)  # past HANDLER_TIMEOUT
    scene.flights.renewed([message], leased_at=now + 16 * 60)
    assert scene.ended() is ends
    assert boarded.should_stop is not ends
    charged = [(s.item, s.error.error_class) for s in scene.flights.landed() if isinstance(s, Abandon)]
    assert charged == ([] if ends else [(message, "HandlerTimeout")])
    assert [run.message for run in scene.runs.hung] == [message]
    assert scene.runs.hopeless
    scene.runs.end()
    assert scene.runs.hung == []


def begin(scene: Scene, timeout: float) -> list[Message]:
    """Three messages of one chunk, the second of them in the hands of its handler."""
    messages = [scene.take_off(leased_at=time.monotonic()) for _ in range(3)]
    handler = Handler(topic=messages[1].topic, function=lambda m: None, timeout=timedelta(seconds=timeout))
    scene.flights.boarding(messages[1], unfenced=False)
    scene.runs.begin(messages[1], handler, mates=messages)
    return messages


def test_the_mates_of_a_hung_handler_are_charged_with_nothing() -> None:
    """Their effects stand in a transaction that will never commit: they go back, to be run again."""
    scene = Scene()
    first, hung, last = begin(scene, timeout=-1)
    assert not scene.ended()
    settled = {s.item.id: type(s) for s in scene.flights.landed()}
    assert settled == {first.id: Release, hung.id: Abandon, last.id: Release}
    assert len(scene.flights.landed()) == 3
    assert scene.flights.active == 0
    assert scene.flights.messages() == []


def test_a_hung_handler_is_given_up_once() -> None:
    """However often the watchdog looks at it afterwards."""
    scene = Scene()
    begin(scene, timeout=-1)
    assert [len(scene.runs.newly_hung()) for _ in range(3)] == [1, 0, 0]


def test_the_handlers_own_timeout_goes_before_the_setting() -> None:
    """Shorter or longer; without one the setting holds."""
    scene = Scene()
    begin(scene, timeout=7200)
    (run,) = scene.runs._running.values()
    assert run.timeout == 7200
    scene.runs.begin(run.message, Handler(topic="x", function=lambda m: None))
    (run,) = scene.runs._running.values()
    assert run.timeout == 15 * 60


def test_a_hook_that_hangs_after_the_commit_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message has landed: the write lock is free, and what else runs may finish."""
    scene = Scene(one_writer=True)
    message = scene.take_off(leased_at=time.monotonic())
    scene.flights.boarding(message, unfenced=False)
    scene.runs.begin(message, Handler(topic=message.topic, function=lambda m: None))
    scene.flights.land([message], [])
    now = time.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now + 16 * 60)
    assert not scene.ended()
    assert [run.message for run in scene.runs.hung] == [message]
    assert scene.flights.landed() == []


def test_a_handler_that_comes_back_lands_once() -> None:
    """Given up, it may still return: the first landing counts, and nothing is counted twice."""
    scene = Scene()
    message = scene.take_off(leased_at=0)
    scene.flights.land([message], [])
    scene.flights.land([message], [])
    assert scene.flights.active == 0


def test_an_earlier_claim_of_the_same_message_changes_nothing() -> None:
    """Claimed again by the same process, while the handler of the lost claim still runs."""
    scene = Scene()
    stale = scene.take_off(leased_at=0)
    fresh: Message = MessageFactory(id=stale.id)
    assert fresh.owner_token != stale.owner_token
    scene.flights.take_off([fresh], leased_at=0)
    assert scene.flights.boarding(stale, unfenced=True) is None
    scene.flights.land([stale], [])
    assert scene.flights.active == 1
    assert scene.flights.messages() == [fresh]


def test_a_guard_that_fails_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its watchdog a process could hang for ever, and nobody would know."""
    ends: list[str] = []

    def fail() -> str | None:
        raise ZeroDivisionError("oh")

    def end(reason: str) -> None:
        ends.append(reason)
        watchdog.stop()

    monkeypatch.setattr(watchdog_module, "CHECK_SECONDS", 0.01)
    watchdog = Watchdog(reasons=(fail,), end_process=end)
    watchdog.start()
    eventually(lambda: bool(ends), seconds=10)
    assert ends == ["A guard failed with ZeroDivisionError('oh')"]


class Ended(Exception):
    pass


@pytest.mark.parametrize(
    ("stop", "limit", "wanted"),
    [(False, None, "again"), (True, None, "for good"), (False, 3, "again"), (False, 2, "for good")],
)
def test_a_process_that_was_to_end_is_not_started_again(
    stop: bool, limit: int | None, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told to stop, or at its limit, when the watchdog ends it. Else its successor gets what is left of
    the limit."""
    done: list[tuple[str, object]] = []
    monkeypatch.setattr(worker_module, "end_soon", lambda code: None)
    monkeypatch.setattr(worker_module, "end", lambda code: raising(done.append(("for good", code))))
    monkeypatch.setattr(worker_module, "leave", lambda o: raising(done.append(("again", o.max_messages))))
    worker = OutboxWorker(WorkerOptions(max_messages=limit))
    worker._claiming.claimed = 2
    if stop:
        worker.stop_flag.request()
    with pytest.raises(Ended):
        worker._end_process("The wire is dead")
    worker.waiter.close()
    assert done == [(wanted, 1 if wanted == "for good" or limit else None)]


def raising(_: object) -> None:
    raise Ended
