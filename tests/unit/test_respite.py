"""The respite of a worker whose handler threads cannot connect."""

from __future__ import annotations

import pytest

from reliable_messaging import clock
from reliable_messaging.workers.respite import Respite


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: time[0])
    return time


def test_a_respite_is_longer_each_time_and_has_an_end(now: list[float]) -> None:
    """However long the server has no sessions to give: work goes on within seconds of the first."""
    respite = Respite()
    lengths = []
    for _ in range(7):
        lengths.append(respite.begin())
        assert respite.is_on
        now[0] += lengths[-1]
        assert not respite.is_on
    assert lengths == [0.25, 0.5, 1, 2, 4, 5, 5]


def test_threads_that_fail_together_begin_the_same_one(now: list[float]) -> None:
    """Four threads are no reason for the longest respite at once."""
    respite = Respite()
    assert [respite.begin() for _ in range(4)] == [0.25] * 4


def test_a_session_ends_it(now: list[float]) -> None:
    """And the next one begins short."""
    respite = Respite()
    for _ in range(5):
        now[0] += respite.begin()
    respite.begin()
    respite.end()
    assert not respite.is_on
    assert respite.begin() == 0.25
