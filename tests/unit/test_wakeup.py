"""How often a process wakes workers, and how long they stay alert."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import load_command_class

from reliable_messaging import clock, wakeup
from reliable_messaging.wakeup import INTERVAL, SAVINGS, Allowance
from reliable_messaging.workers import WorkerOptions
from reliable_messaging.workers.lookout import Lookout
from reliable_messaging.workqueue import Horizon


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: time[0])
    return time


def test_what_was_saved_up_is_spent_and_earned_again(now: list[float]) -> None:
    """Twenty at once, and then one for each interval."""
    allowance = Allowance()
    assert [allowance.take() for _ in range(SAVINGS + 5)] == [True] * SAVINGS + [False] * 5
    now[0] += INTERVAL * 1.01
    assert [allowance.take() for _ in range(2)] == [True, False]
    now[0] += 3600
    assert SAVINGS - 1 <= sum(allowance.take() for _ in range(100)) <= SAVINGS  # floats


def test_in_the_long_run_it_is_one_for_each_interval(now: list[float]) -> None:
    """However many commits there are: twenty a second, and what was saved up before."""
    allowance = Allowance()
    sent = 0
    for _ in range(10_000):
        sent += allowance.take()
        now[0] += 0.001
    assert 200 <= sent <= 200 + SAVINGS


def test_an_uneven_stream_of_twenty_a_second_is_never_withheld(now: list[float]) -> None:
    """Two may come in the same moment, and none for the next two intervals."""
    allowance = Allowance()
    for _ in range(1000):
        assert allowance.take()
        assert allowance.take()
        now[0] += 2 * INTERVAL


def test_what_is_withheld_came_soon_after_one_that_was_sent(now: list[float]) -> None:
    """Less than an interval: so long do workers stay alert after each that they hear."""
    allowance = Allowance()
    last = -1.0
    for step in range(20_000):
        if allowance.take():
            last = now[0]
        else:
            assert now[0] - last < INTERVAL
        now[0] += (0.0001, 0.0007, 0.0203, 0.0009)[step % 4]


def test_each_database_has_its_own(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy one must not silence a quiet one."""
    monkeypatch.setattr(wakeup, "_allowances", type(wakeup._allowances)(Allowance))
    sent: list[str] = []
    free = SimpleNamespace(vendor="postgresql")
    monkeypatch.setattr(wakeup, "connections", {"busy": free, "quiet": free})
    monkeypatch.setattr(wakeup, "_is_free", lambda connection: True)
    monkeypatch.setattr(wakeup, "notify", lambda connection, **_: sent.append("sent"))
    for _ in range(SAVINGS + 5):
        wakeup.wake_workers("busy")
    assert len(sent) == SAVINGS
    wakeup.wake_workers("quiet")
    assert len(sent) == SAVINGS + 1


def test_what_is_not_sent_is_not_spent(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers count on one that came before what is withheld."""
    sent: list[str] = []
    free: list[bool] = []
    monkeypatch.setattr(wakeup, "connections", {"unspent": SimpleNamespace(vendor="postgresql")})
    monkeypatch.setattr(wakeup, "_is_free", lambda connection: bool(free))
    monkeypatch.setattr(wakeup, "notify", lambda connection, **_: sent.append("sent"))
    for _ in range(SAVINGS + 5):
        wakeup.wake_workers("unspent")
    assert sent == []
    free.append(True)
    wakeup.wake_workers("unspent")
    assert sent == ["sent"]


def lookout(poll_min: float, discovered: list[int]) -> Lookout:
    queue: Any = SimpleNamespace(
        look=lambda queues, selection, within: Horizon(),
        discover_queues=lambda selection: discovered.append(1) or (),
        reading=nullcontext,
        purge=lambda: 0,
        alias="default",
    )
    options = WorkerOptions(poll_min=timedelta(seconds=poll_min), poll_max=timedelta(seconds=5))
    found = Lookout(queue=queue, options=options, before_reaping=lambda: None)
    found._maintenance = SimpleNamespace(run=lambda seen: False)  # type: ignore[assignment]
    return found


@pytest.mark.parametrize("poll_min", [0.1, 0.01])
def test_after_a_wake_up_a_worker_polls_fast_for_an_interval(poll_min: float, now: list[float]) -> None:
    """Until a look has begun that the sender's silence does not cover any more. Each of them asks which
    queues there are: the message may be the first of its queue."""
    discovered: list[int] = []
    found = lookout(poll_min, discovered)
    while found.look_at - now[0] < 4:
        now[0] = max(now[0], found.look_at)
        found.look()
    began = now[0]
    found.stay_alert(INTERVAL)
    discovered.clear()
    looks = 0
    while now[0] < began + INTERVAL:
        found.look()
        looks += 1
        assert found.look_at == pytest.approx(now[0] + poll_min)
        now[0] = found.look_at
    found.look()
    assert len(discovered) == looks + 1
    assert found.look_at > now[0] + poll_min
    now[0] = found.look_at
    found.look()
    assert len(discovered) == looks + 1


def test_the_option_is_handed_on() -> None:
    """What is not said is left to the setting."""
    parser = load_command_class("reliable_messaging", "run_outbox_worker").create_parser("manage.py", "run")
    assert parser.parse_args(["--no-wakeup"]).wakeup is False
    assert parser.parse_args([]).wakeup is None
