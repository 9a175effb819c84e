"""The supervisor's places for processes, with stand-ins for processes and a clock in the test's hands."""

from __future__ import annotations

import io
from typing import Any

import pytest

from reliable_messaging import clock
from reliable_messaging.workers.supervisor import LONG_LIFE, LONGEST_PAUSE, Slot


class Child:
    def __init__(self) -> None:
        self.pid = 1
        self.code: int | None = None
        self.stdin = io.BytesIO()

    def poll(self) -> int | None:
        return self.code


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: time[0])
    return time


class Scene:
    def __init__(self, *, may_end: bool = False) -> None:
        self.children: list[Any] = []
        self.slot = Slot(start=self._start, name="1", may_end=may_end)
        self.slot.tend()

    def _start(self) -> Any:
        self.children.append(Child())
        return self.children[-1]

    def end(self, code: int) -> float:
        """The child ends; returns how long until another may start."""
        self.children[-1].code = code
        self.slot.tend()
        return self.slot.start_at - clock.monotonic()


def test_pauses_double_up_to_a_limit(now: list[float]) -> None:
    """A child that dies at its start is not started again in a busy loop, nor ever given up."""
    scene = Scene()
    pauses = []
    for _ in range(9):
        pauses.append(scene.end(1))
        scene.slot.tend()
        assert scene.slot.child is None, "not before the pause is over"
        now[0] += pauses[-1]
        scene.slot.tend()
    assert pauses == [0.5, 1, 2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    assert len(scene.children) == 10


@pytest.mark.parametrize(("code", "lived"), [(75, 0.0), (1, LONG_LIFE + 1), (-9, LONG_LIFE + 1)])
def test_who_asks_for_a_successor_or_lived_long_gets_one_soon(
    now: list[float], code: int, lived: float
) -> None:
    """Only dying young makes the pauses longer."""
    scene = Scene()
    for _ in range(4):
        now[0] += scene.end(1)
        scene.slot.tend()
    now[0] += lived
    assert scene.end(code) == 0.5


@pytest.mark.parametrize(("may_end", "children"), [(True, 1), (False, 2)])
def test_who_ends_with_0_needs_no_successor(now: list[float], may_end: bool, children: int) -> None:
    """It has done what it was to do: --burst, --max-messages. Without those, 0 is a death like others."""
    scene = Scene(may_end=may_end)
    scene.end(0)
    now[0] += 1000
    scene.slot.tend()
    assert scene.slot.finished is may_end
    assert len(scene.children) == children


def test_who_is_let_go_is_not_started_again(now: list[float]) -> None:
    """Whatever it ends with."""
    scene = Scene()
    scene.slot.let_go()
    assert scene.children[0].stdin.closed
    scene.end(1)
    now[0] += 1000
    scene.slot.tend()
    assert len(scene.children) == 1


def test_no_process_to_be_had_takes_nobody_down(now: list[float]) -> None:
    """The system has no room: it is tried again later, and the supervisor goes on."""
    tries: list[float] = []

    def start() -> Any:
        tries.append(now[0])
        raise BlockingIOError("no process to be had")

    slot = Slot(start=start, name="1", may_end=False)
    for _ in range(5):
        slot.tend()
        now[0] += LONGEST_PAUSE / 2
    assert len(tries) == 3
