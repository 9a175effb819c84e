"""The alarm that ends a frozen process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from reliable_messaging.workers import frozen
from reliable_messaging.workers.frozen import SHORTEST, ending_when_frozen
from tests.workers import ROOT

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


FIRST_PROCESS = """
import os, re, sys
from datetime import timedelta
import django

django.setup()
from reliable_messaging.workers import frozen

assert os.getpid() == 1
frozen.is_own_process = lambda: True
frozen.SHORTEST = 1.0
with frozen.ending_when_frozen(timedelta(seconds=0.1)):
    print("frozen", flush=True)
    re.match(r"(a+)+$", "a" * 64 + "!")
"""


def test_the_first_process_of_a_container_is_ended_too() -> None:
    """The system keeps signals without a handler from process 1, its own alarm as well."""
    namespace = ["unshare", "--pid", "--fork", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("unshare is not there, or may not be used")
    ran = subprocess.run(
        [*namespace, sys.executable, "-c", FIRST_PROCESS],
        check=False,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "TEST_DATABASES": "sqlite"},
        timeout=60,
    )
    assert ran.stdout == b"frozen\n"
    assert ran.returncode == 1
    assert b" in match" in ran.stderr, "it says where it stood"


def test_the_first_process_of_a_container_ends_in_peace(
    own_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When nothing has frozen, the timer ends with the block, and no signal is touched."""
    timers: list[str] = []
    monkeypatch.setattr(frozen.os, "getpid", lambda: 1)
    monkeypatch.setattr(
        frozen.faulthandler, "dump_traceback_later", lambda seconds, **_: timers.append("wound")
    )
    monkeypatch.setattr(frozen.faulthandler, "cancel_dump_traceback_later", lambda: timers.append("unwound"))
    with ending_when_frozen(LEASE):
        assert seconds_left() == 0
    assert timers == ["wound", "unwound"]
