"""Why a worker process must end at once, and why it need not."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from reliable_messaging import clock
from reliable_messaging.message import Message
from reliable_messaging.registry import Handler
from reliable_messaging.workers.flights import Flights
from reliable_messaging.workers.guards import Guards
from reliable_messaging.workers.runs import Runs
from reliable_messaging.workers.watchdog import Watchdog
from reliable_messaging.workqueue import Abandon
from tests.factories import MessageFactory

LEASE = 10.0


class Scene:
    """A worker's guards, with everything that they look at in a test's hands."""

    def __init__(self, *, one_writer: bool = False) -> None:
        self.flights = Flights(wake=lambda: None, stopping=lambda: False)
        self.runs = Runs()
        self.heartbeat: Any = SimpleNamespace(silent_for=0.0)
        self.holds_write_lock = False
        self.turn_began: float | None = None
        self.ends: list[bool] = []
        guards = Guards(
            flights=self.flights,
            runs=self.runs,
            heartbeat=self.heartbeat,
            lease=LEASE,
            one_writer=one_writer,
            holds_write_lock=lambda: self.holds_write_lock,
            turn_began=lambda: self.turn_began,
        )
        self._watchdog = Watchdog(reasons=guards.reasons(), end_process=lambda: self.ends.append(True))

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
