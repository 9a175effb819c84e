"""The supervisor's slots, with children and a clock in the test's hands."""

from __future__ import annotations

import io
from typing import Any

import pytest

from reliable_messaging import clock
from reliable_messaging.workers.launch import TRY_AGAIN
from reliable_messaging.workers.stop import StopFlag
from reliable_messaging.workers.supervisor import LONG_LIFE, LONGEST_PAUSE, Slot, Supervisor


class Child:
    """Stands in for a process: ends when its code is set, or when it is killed."""

    def __init__(self) -> None:
        self.pid = 1
        self.code: int | None = None
        self.stdin = io.BytesIO()

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.code = -9


class Time:
    """The monotonic clock, which only moves when somebody waits."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        assert len(self.waits) < 1000, "a busy loop"
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(clock, "monotonic", lambda: time.now)
    return time


class Place:
    """A slot, and the children that it had."""

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.slot = Slot(start=self.start, name="1")

    def start(self) -> Any:
        self.children.append(Child())
        return self.children[-1]

    def end(self, code: int) -> None:
        self.children[-1].code = code
        self.slot.tend()


def pause_after(place: Place, time: Time, code: int, *, lived: float = 1.0) -> float:
    """Have a child that ends like this; say how long until its successor may start."""
    place.slot.tend()
    time.now += lived
    place.end(code)
    pause = place.slot.start_at - time.now
    started = len(place.children)
    time.now += pause - 0.01
    place.slot.tend()
    assert len(place.children) == started, "too soon"
    time.now += 0.02
    return pause


def test_pauses_between_starts_grow_and_have_an_end(time: Time) -> None:
    """A child that dies at its start is not started in a busy loop, and never given up either."""
    place = Place()
    pauses = [pause_after(place, time, code=1) for _ in range(9)]
    assert pauses == pytest.approx([0.5, 1, 2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE])


def test_a_child_that_did_not_die_of_its_start_has_a_successor_soon(time: Time) -> None:
    """It asked for one, or it had lived for long."""
    place = Place()
    for _ in range(5):
        pause_after(place, time, code=1)
    assert pause_after(place, time, code=TRY_AGAIN) == pytest.approx(0.5)
    for _ in range(5):
        pause_after(place, time, code=1)
    assert pause_after(place, time, code=1, lived=LONG_LIFE + 1) == pytest.approx(0.5)


def test_a_child_that_has_done_its_work_has_no_successor(time: Time) -> None:
    """Exit 0: a burst, or a limit of messages."""
    place = Place()
    place.slot.tend()
    place.end(0)
    time.now += 3600
    place.slot.tend()
    assert len(place.children) == 1
    assert place.slot.finished


def test_after_a_stop_nothing_is_started_again(time: Time) -> None:
    """Also not when a child dies while it stops."""
    place = Place()
    place.slot.tend()
    place.slot.let_go()
    assert place.children[0].stdin.closed
    place.end(1)
    time.now += 3600
    place.slot.tend()
    assert len(place.children) == 1


def make_supervisor(time: Time, places: list[Place], *, stopping: bool) -> Supervisor:
    stop = StopFlag(lambda: None)
    stop.requested = stopping
    waiter: Any = time
    return Supervisor(slots=[place.slot for place in places], waiter=waiter, stop=stop, patience=35)


def test_children_that_do_not_stop_are_killed(time: Time) -> None:
    """After their grace, and a margin; not before."""
    places = [Place(), Place()]
    for place in places:
        place.slot.tend()
    began = time.now
    make_supervisor(time, places, stopping=True).run()
    assert [place.children[0].code for place in places] == [-9, -9]
    assert 35 <= time.now - began < 40


def test_the_supervisor_ends_with_its_last_child(time: Time) -> None:
    """While one of them works, it waits without a busy loop."""
    places = [Place(), Place()]
    supervisor = make_supervisor(time, places, stopping=False)
    wait = time.wait

    def end_one_by_one(seconds: float) -> None:
        wait(seconds)
        working = [place for place in places if place.children[-1].code is None]
        working[0].children[-1].code = 0

    time.wait = end_one_by_one  # type: ignore[method-assign]
    supervisor.run()
    assert [place.children[0].code for place in places] == [0, 0]
    assert time.waits == [60, 60]


def test_what_is_to_be_started_is_waited_for(time: Time) -> None:
    """Until its time: neither a busy loop, nor a minute."""
    place = Place()
    supervisor = make_supervisor(time, [place], stopping=False)
    wait = time.wait

    def die_and_then_end(seconds: float) -> None:
        wait(seconds)
        if place.slot.child is not None:
            place.children[-1].code = 1 if len(place.children) < 4 else 0

    time.wait = die_and_then_end  # type: ignore[method-assign]
    supervisor.run()
    assert time.waits == pytest.approx([60, 0.5, 60, 1, 60, 2, 60])
