"""The supervisor's loop over its places, with stand-ins for processes and a clock that only waits move."""

from __future__ import annotations

import io
import signal
import subprocess
from typing import Any

import pytest

from reliable_messaging import clock
from reliable_messaging.workers.stop import StopFlag
from reliable_messaging.workers.supervisor import Slot, Supervisor


class Child:
    """Stands in for a process: ends when its code is set, when it is killed, or, if it listens, when it is
    told twice."""

    listens = False

    def __init__(self) -> None:
        self.pid = 1
        self.code: int | None = None
        self.stdin = io.BytesIO()
        self.told: list[int] = []

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, number: int) -> None:
        self.told.append(number)
        if self.listens and len(set(self.told)) == 2:
            self.code = 128 + number

    def wait(self, timeout: float) -> int:
        if self.code is None:
            raise subprocess.TimeoutExpired("child", timeout)
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
        self.slot = Slot(start=self.start, name="1", may_end=True)

    def start(self) -> Any:
        self.children.append(Child())
        return self.children[-1]


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


def test_children_are_told_twice_before_they_are_killed(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that listens takes its own child along, which a SIGKILL would leave behind."""
    monkeypatch.setattr(Child, "listens", True)
    place = Place()
    place.slot.tend()
    make_supervisor(time, [place], stopping=True).kill()
    assert place.children[0].code == 128 + signal.SIGINT


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
