"""Coroutines past their time: who is charged when they share an event loop, and where each of them stood."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from reliable_messaging import clock
from reliable_messaging.registry import Handler
from reliable_messaging.workers.runs import HELD_UP, Run, Runs
from reliable_messaging.workers.stacks import coroutine_stack
from tests.factories import MessageFactory


class FakeHost:
    def __init__(self, *, running: bool = False, blocked: bool = False) -> None:
        self.is_running = running
        self.loop_is_blocked = blocked
        self.cancelled = 0

    def stack(self) -> str:
        return "the coroutine's"

    def cancel(self) -> None:
        self.cancelled += 1


async def work(message: Any) -> None: ...


def begin(runs: Runs, host: FakeHost | None, *, timeout: float = 10) -> Run:
    handler = Handler(topic="x", function=work, atomic=False, timeout=timedelta(seconds=timeout))
    message = MessageFactory()
    runs.begin(message, handler, host=host)
    return next(run for run in runs._running.values() if run.message is message)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    now = clock.monotonic()

    def travel(seconds: float) -> None:
        monkeypatch.setattr(clock, "monotonic", lambda: now + seconds)

    return travel


def test_many_coroutines_of_one_thread_are_told_apart(later: Any) -> None:
    """Each has its own time, and its own end; a handler of the thread itself is another."""
    runs, hosts = Runs(), [FakeHost(), FakeHost()]
    short, long = begin(runs, hosts[0], timeout=1), begin(runs, hosts[1], timeout=100)
    begin(runs, None, timeout=100)
    later(5)
    assert runs.newly_hung() == [short]
    assert runs.hung == [short]
    runs.end(hosts[0])
    runs.end()
    assert list(runs._running.values()) == [long]


def test_a_report_shows_the_coroutine() -> None:
    """Not what else the thread of the event loop is at."""
    runs = Runs()
    assert begin(runs, FakeHost()).report().traceback == "the coroutine's"
    assert "test_a_report_shows" in begin(runs, None).report().traceback


def test_only_a_coroutine_can_be_cancelled() -> None:
    """A thread has to ask by itself."""
    runs, host = Runs(), FakeHost()
    begin(runs, host).stop()
    begin(runs, None).stop()
    assert host.cancelled == 1


def test_who_is_held_up_by_another_is_given_more_time(later: Any) -> None:
    """Until the other lets go of the loop; then its time is over after all."""
    runs, blocker, host = Runs(), FakeHost(running=True, blocked=True), FakeHost(blocked=True)
    begin(runs, blocker, timeout=100)
    held_up = begin(runs, host)
    later(11)
    assert runs.newly_hung() == []
    blocker.is_running = blocker.loop_is_blocked = host.loop_is_blocked = False
    assert runs.newly_hung() == []
    later(11 + HELD_UP + 0.1)
    assert runs.newly_hung() == [held_up]


def test_who_blocks_the_loop_strands_the_others(later: Any) -> None:
    """Past its time, it is charged. The others of its loop are given back, once; a thread goes on."""
    runs, blocker = Runs(), FakeHost(running=True, blocked=True)
    guilty, innocent = begin(runs, blocker), begin(runs, FakeHost(blocked=True), timeout=5)
    begin(runs, None, timeout=100)
    later(8)
    assert (runs.newly_hung(), runs.newly_stranded()) == ([], [])
    later(11)
    assert runs.newly_hung() == [guilty]
    assert runs.newly_stranded() == [innocent]
    assert runs.newly_stranded() == []
    assert runs.hung == [guilty, innocent]


def test_a_hung_coroutine_that_lets_go_strands_nobody(later: Any) -> None:
    """The loop turns: its neighbours can come to their end."""
    runs = Runs()
    guilty = begin(runs, FakeHost())
    begin(runs, FakeHost(), timeout=100)
    later(11)
    assert runs.newly_hung() == [guilty]
    assert runs.newly_stranded() == []


def test_when_nobody_is_seen_to_block_the_loop_whoever_is_late_is_charged(later: Any) -> None:
    """A callback, or a task that a handler has started: one of them has to be the reason."""
    runs = Runs()
    late, other = begin(runs, FakeHost(blocked=True)), begin(runs, FakeHost(blocked=True), timeout=100)
    later(11)
    assert runs.newly_hung() == [late]
    assert runs.newly_stranded() == [other]


def test_the_stack_of_a_coroutine_goes_down_to_what_it_awaits() -> None:
    """The innermost line is the last."""

    async def innermost() -> None:
        await asyncio.sleep(600)

    async def outermost() -> None:
        await innermost()

    async def look() -> str:
        task = asyncio.create_task(outermost())
        await asyncio.sleep(0.01)
        found = coroutine_stack(task.get_coro())
        task.cancel()
        return found

    found = asyncio.run(look())
    places = [found.index(f"in {name}") for name in ("outermost", "innermost", "sleep")]
    assert places == sorted(places)
    assert coroutine_stack(None) == ""
