"""Telling what was settled: on a thread of its own, and nothing is swallowed."""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reliable_messaging.terminal import Terminal
from reliable_messaging.workers import teller as module
from reliable_messaging.workers.teller import MOST_WAITING, Teller
from tests.workers import eventually

Told = list[tuple[str, int]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What was told, and by which thread."""
    found: Told = []
    monkeypatch.setattr(module, "tell", lambda using, batch: found.append((using, threading.get_ident())))
    return found


@pytest.fixture
def teller() -> Iterator[Teller]:
    made = Teller()
    yield made
    made.close(within=10)


def test_an_open_teller_tells_on_a_thread_of_its_own(teller: Teller, told: Told) -> None:
    """In order, and all of it before it is closed."""
    teller.start()
    for name in "abc":
        teller.tell(name, [])
    teller.close(within=10)
    assert [name for name, _ in told] == ["a", "b", "c"]
    assert threading.get_ident() not in {thread for _, thread in told}


def test_a_teller_that_is_not_open_tells_at_once(teller: Teller, told: Told) -> None:
    """Before its start and after its end: whoever settles tells."""
    teller.tell("before", [])
    teller.start()
    teller.close(within=10)
    teller.tell("after", [])
    assert told == [("before", threading.get_ident()), ("after", threading.get_ident())]


def test_who_settles_faster_than_is_told_waits(teller: Teller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what waits to be told would grow without end. Nor does he tell himself: receivers would use his
    session, which is set up for claims."""
    go, told = threading.Event(), []

    def tell(using: str, batch: Any) -> None:
        go.wait(30)
        told.append(threading.get_ident())

    def settle() -> None:
        for number in range(MOST_WAITING + 5):
            teller.tell(str(number), [])

    monkeypatch.setattr(module, "tell", tell)
    teller.start()
    settling = threading.Thread(target=settle, daemon=True)
    settling.start()
    settling.join(timeout=0.3)
    assert settling.is_alive()
    go.set()
    settling.join(timeout=10)
    teller.close(within=10)
    assert (len(told), len(set(told))) == (MOST_WAITING + 5, 1)
    assert settling.ident not in told


def test_a_receiver_that_hangs_does_not_stop_the_work(
    teller: Teller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be told is left out, with a line that says so, until there is room again. Else the whole
    process would be ended, for its claiming thread would seem to have no answer from the database."""
    go, told = threading.Event(), []

    def tell(using: str, batch: Any) -> None:
        go.wait(5)
        told.append(using)

    monkeypatch.setattr(module, "tell", tell)
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    teller._patience = 0.01
    teller.start()
    for number in range(MOST_WAITING + 5):
        teller.tell(str(number), [])
    left_out = [record for record in caplog.records if record.getMessage().startswith("messages not told")]
    assert len(left_out) in (4, 5)  # the first may have been taken off the queue by then
    go.set()
    eventually(lambda: not teller._batches.full())
    teller.tell("after", [])
    teller.close(within=10)
    assert len(told) == MOST_WAITING + 5 - len(left_out) + 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_a_teller_that_died(teller: Teller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver has ended its thread: then whoever settles tells, as when there is none."""
    told: list[int] = []

    def tell(using: str, batch: Any) -> None:
        if threading.current_thread() is teller._thread:
            raise SystemExit
        told.append(threading.get_ident())

    monkeypatch.setattr(module, "tell", tell)
    teller.start()
    teller.tell("deadly", [])
    teller._thread.join(timeout=10)
    for number in range(MOST_WAITING + 5):
        teller.tell(str(number), [])
    assert told == [threading.get_ident()] * (MOST_WAITING + 5)


def test_an_error_does_not_end_the_telling(
    teller: Teller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the next batch is told."""
    heard: list[str] = []

    def tell(using: str, batch: Any) -> None:
        if using == "bad":
            raise RuntimeError("a receiver")
        heard.append(using)

    monkeypatch.setattr(module, "tell", tell)
    teller.start()
    teller.tell("bad", [])
    teller.tell("good", [])
    teller.close(within=10)
    assert heard == ["good"]
    assert "could not be told" in caplog.text


class Writes(io.StringIO):
    """Keeps what each write was."""

    def __init__(self) -> None:
        super().__init__()
        self.each: list[str] = []

    def write(self, text: str) -> int:
        self.each.append(text)
        return len(text)


@pytest.fixture
def log() -> tuple[Terminal, Writes, Callable[[str], None]]:
    terminal, writes = Terminal(), Writes()
    terminal.setStream(writes)

    def line(text: str) -> None:
        terminal.handle(logging.LogRecord("x", logging.INFO, "", 0, text, (), None))

    return terminal, writes, line


def test_lines_of_a_batch_are_one_write(log: tuple[Terminal, Writes, Callable[[str], None]]) -> None:
    """Those of this thread, until the end of the block; others are written as they come."""
    terminal, writes, line = log
    with terminal.together():
        line("one")
        other = threading.Thread(target=line, args=("of another",))
        other.start()
        other.join()
        line("two")
        assert ["of another" in text for text in writes.each if text.strip()] == [True]
    assert [text.count("INFO") for text in writes.each if text.strip()] == [1, 2]


def test_lines_are_written_when_the_batch_fails(log: tuple[Terminal, Writes, Callable[[str], None]]) -> None:
    """They were said before."""
    terminal, writes, line = log
    with pytest.raises(ValueError), terminal.together():
        line("said")
        raise ValueError
    assert "said" in "".join(writes.each)
