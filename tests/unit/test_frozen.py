"""The alarm that ends a frozen process."""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest

from reliable_messaging.workers import frozen
from reliable_messaging.workers.frozen import SHORTEST, ending_when_frozen

LEASE = timedelta(seconds=60)


def seconds_left() -> float:
    return signal.getitimer(signal.ITIMER_REAL)[0]


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "is_own_process", lambda: True)


@pytest.mark.parametrize(("lease", "limit"), [(LEASE, 240.0), (timedelta(seconds=1), SHORTEST)])
def test_it_is_wound_up_for_the_length_of_the_block(
    own_process: None, lease: timedelta, limit: float
) -> None:
    """Longer than any pause that others survive; switched off at the end, and the signal is free again."""
    with ending_when_frozen(lease):
        assert limit - 5 < seconds_left() <= limit
    assert seconds_left() == 0
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_somebody_else_s_process_is_left_alone() -> None:
    """call_command() in a test: that process is not ours to end."""
    with ending_when_frozen(LEASE):
        assert seconds_left() == 0


def test_a_signal_in_use_is_left_alone(own_process: None) -> None:
    """The project has plans of its own for SIGALRM."""
    before = signal.signal(signal.SIGALRM, lambda number, frame: None)
    try:
        with ending_when_frozen(LEASE):
            assert seconds_left() == 0
    finally:
        signal.signal(signal.SIGALRM, before)
