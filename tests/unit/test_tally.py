"""A flood of log lines is summed up, and nothing else is."""

from __future__ import annotations

import logging

import pytest

from reliable_messaging import clock
from reliable_messaging.tally import MOST_SHOWN, Tally


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock, to be set."""
    moment = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: moment[0])
    return moment


@pytest.fixture
def tally() -> Tally:
    made = Tally()
    made.is_on = True
    return made


def summed(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.rm["count"] for record in caplog.records]  # type: ignore[attr-defined]


def test_the_first_lines_of_a_second_are_shown_and_the_rest_counted(
    tally: Tally, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """The next second begins with how many there were, and shows its own first lines."""
    caplog.set_level(logging.INFO)
    assert [tally.shows(60) for _ in range(3)] == [60, MOST_SHOWN - 60, 0]
    assert tally.has_more
    assert summed(caplog) == []
    now[0] += 1
    assert tally.shows(3) == 3
    assert summed(caplog) == [180 - MOST_SHOWN]
    assert not tally.has_more


def test_few_lines_are_all_shown(tally: Tally, now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """And there is nothing to sum up."""
    caplog.set_level(logging.INFO)
    for _ in range(5):
        assert tally.shows(MOST_SHOWN) == MOST_SHOWN
        now[0] += 1
    tally.sum_up()
    assert summed(caplog) == []


def test_a_tally_that_is_off_takes_nothing(now: list[float]) -> None:
    """Whoever keeps logs gets every line."""
    assert Tally().shows(3 * MOST_SHOWN) == 3 * MOST_SHOWN
