"""Being told to stop: by signals, and by a parent that lets go."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from reliable_messaging import clock
from reliable_messaging.workers import lifeline
from reliable_messaging.workers.lifeline import stop_when_parent_lets_go
from reliable_messaging.workers.stop import ECHO, StopFlag, stopping_on_signals


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was done at once instead of ending this process."""
    seen: list[object] = []
    monkeypatch.setattr(os, "_exit", seen.append)
    return seen


def test_the_second_signal_ends_the_process_at_once(exits: list[object]) -> None:
    """The first asks; who insists gets what was arranged for that case first, and then the exit."""
    flag = StopFlag(lambda: None)
    with stopping_on_signals(flag, at_once=lambda: exits.append("take the child along")):
        os.kill(os.getpid(), signal.SIGTERM)
        assert (flag.requested, exits) == (True, [])
        os.kill(os.getpid(), signal.SIGINT)
        assert exits == ["take the child along", 128 + signal.SIGINT]


def test_an_echo_of_the_signal_is_no_insisting(exits: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who signals a process and then its group has said it once; who says it again later insists."""
    with stopping_on_signals(StopFlag(lambda: None)):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert exits == []
        later = clock.monotonic() + ECHO + 0.01
        monkeypatch.setattr(clock, "monotonic", lambda: later)
        os.kill(os.getpid(), signal.SIGTERM)
        assert exits == [128 + signal.SIGTERM]


def test_a_parent_that_lets_go_is_no_signal(exits: list[object]) -> None:
    """Asked by its parent and by one signal, a child still has its grace."""
    flag = StopFlag(lambda: None)
    with stopping_on_signals(flag):
        flag.request()
        os.kill(os.getpid(), signal.SIGTERM)
    assert exits == []


def test_the_signals_are_given_back() -> None:
    """A program that calls a worker gets its own handlers back."""
    before = signal.getsignal(signal.SIGTERM)
    with stopping_on_signals(StopFlag(lambda: None)):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.fixture
def standard_input(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The other end of what a child reads."""
    read, write = os.pipe()
    monkeypatch.setattr(lifeline, "STANDARD_INPUT", read)
    yield write
    os.close(read)


def test_only_the_end_of_standard_input_stops_a_child(standard_input: int) -> None:
    """What a terminal or a parent writes there does not."""
    told = threading.Event()
    stop_when_parent_lets_go(StopFlag(told.set))
    os.write(standard_input, b"a line\n")
    assert not told.wait(0.2)
    os.close(standard_input)
    assert told.wait(10)


def test_no_standard_input_is_one_that_has_ended(standard_input: int) -> None:
    """Some parents close it: nobody would be there to tell the child to stop."""
    told = threading.Event()
    os.close(standard_input)
    closed = os.open(os.devnull, os.O_WRONLY)  # cannot be read: an error, as from a closed one
    lifeline.STANDARD_INPUT = closed
    stop_when_parent_lets_go(StopFlag(told.set))
    assert told.wait(10)
    os.close(closed)
