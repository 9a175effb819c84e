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
    taken = [tally.takes() for _ in range(MOST_SHOWN + 7)]
    assert taken == [False] * MOST_SHOWN + [True] * 7
    assert tally.has_more
    assert summed(caplog) == []
    now[0] += 1
    assert not tally.takes()
    assert summed(caplog) == [7]
    assert not tally.has_more


def test_few_lines_are_all_shown(tally: Tally, now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """And there is nothing to sum up."""
    caplog.set_level(logging.INFO)
    for _ in range(5):
        assert not any(tally.takes() for _ in range(MOST_SHOWN))
        now[0] += 1
    tally.sum_up()
    assert summed(caplog) == []


def test_a_tally_that_is_off_takes_nothing(now: list[float]) -> None:
    """Whoever keeps logs gets every line."""
    tally = Tally()
    assert not any(tally.takes() for _ in range(3 * MOST_SHOWN))
