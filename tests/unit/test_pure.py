"""The pure parts: no database."""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reliable_messaging
from reliable_messaging import codec, logs
from reliable_messaging.exceptions import InvalidPayload, ReliableMessagingError, Retry
from reliable_messaging.ids import lowest_uuid7, uuid7
from reliable_messaging.report import ErrorReport, storable
from reliable_messaging.retry import Backoff
from reliable_messaging.waiter import Waiter
from reliable_messaging.workers.poll import Pace, PollDelay

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@given(JSON)
def test_what_is_encoded_comes_back(value: object) -> None:
    """Any JSON value survives, and its text can be stored everywhere."""
    text = codec.encode(value, max_bytes=10**7)
    assert codec.decode(text) == value
    assert "\x00" not in text
    text.encode()


@given(st.text(st.sampled_from('\\u0"\x00a[')))
def test_exactly_the_texts_with_a_nul_are_refused(value: str) -> None:
    """Backslashes before it neither hide a NUL nor make one."""
    if "\x00" in value:
        with pytest.raises(InvalidPayload, match="NUL"):
            codec.encode(value, max_bytes=10**6)
    else:
        assert codec.decode(codec.encode(value, max_bytes=10**6)) == value


def test_brackets_inside_texts_are_no_depth() -> None:
    """A text full of brackets is one level."""
    assert codec.encode("[" * 5000, max_bytes=10**6)
    assert codec.encode(["]" + "[" * 500, '\\"[[['], max_bytes=10**6)


def test_the_size_limit_counts_bytes() -> None:
    """Not characters."""
    assert codec.encode("é" * 4, max_bytes=10)
    with pytest.raises(InvalidPayload, match="12 bytes"):
        codec.encode("é" * 5, max_bytes=11)


def test_ids_are_increasing_uuid7_across_threads() -> None:
    """Version 7, RFC variant, strictly increasing within a thread, unique across threads."""
    made: list[list[UUID]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda m=m: m.extend(uuid7() for _ in range(5000))) for m in made]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ids in made:
        assert all(a < b for a, b in pairwise(ids))
        assert {(i.version, i.variant) for i in ids} == {(7, "specified in RFC 4122")}
    assert len({i for ids in made for i in ids}) == 20_000


def test_ids_keep_increasing_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock may jump; ids do not."""
    first = uuid7()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert uuid7() > first


def test_a_forked_child_makes_other_ids() -> None:
    """It does not step on from its parent's last one."""
    uuid7()
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, uuid7().bytes)
        os._exit(0)
    os.wait()
    child = UUID(bytes=os.read(read, 16))
    os.close(read), os.close(write)
    assert child != uuid7()


def test_the_lowest_id_of_a_moment() -> None:
    """Below every id of that millisecond, above those before."""
    now = datetime.now(timezone.utc)
    assert lowest_uuid7(now) < uuid7()
    assert lowest_uuid7(now + timedelta(seconds=5)) > uuid7()


def test_backoff_doubles_to_its_maximum() -> None:
    """2, 4, 8 … and never past the maximum plus jitter, however many failures."""
    policy = Backoff(base=timedelta(seconds=2), maximum=timedelta(minutes=5))
    assert [policy(n).total_seconds() for n in (0, 1, 2, 7, 8, 10_000)] == [2, 4, 8, 256, 300, 300]
    jittered = Backoff(base=timedelta(seconds=2), maximum=timedelta(minutes=5), jitter=timedelta(seconds=1))
    assert all(2 <= jittered(0).total_seconds() <= 3 for _ in range(100))


def test_polling_slows_down_when_idle_and_wakes_with_work() -> None:
    """Doubling from the minimum to the maximum; reset by work."""
    poll = PollDelay(minimum=timedelta(seconds=0.1), maximum=timedelta(seconds=1))
    idle = [poll.after(found_work=False).total_seconds() for _ in range(6)]
    assert idle == [0.1, 0.2, 0.4, 0.8, 1, 1]
    assert poll.after(found_work=True).total_seconds() == 0.1
    assert poll.after(found_work=False).total_seconds() == 0.2


def test_the_pace_claims_about_a_second_of_work() -> None:
    """Careful at first; full batches of quick messages; only what the threads can hold of slow ones."""
    pace = Pace(concurrency=4, batch_size=50)
    assert pace.claim_size() == 8
    pace.learn(0.0001)
    assert pace.claim_size() == 50
    for _ in range(50):
        pace.learn(0.4)
    assert 9 <= pace.claim_size() <= 11
    for _ in range(50):
        pace.learn(60)
    assert pace.claim_size() == 4


def test_a_wait_can_be_woken_also_beforehand() -> None:
    """A wake-up is never lost; without one the wait ends by itself."""
    waiter = Waiter()
    for _ in range(100_000):
        waiter.wake()
    waiter.wait(60)
    threading.Timer(0.05, waiter.wake).start()
    waiter.wait(60)
    waiter.wait(0.01)
    waiter.close()


def test_error_reports_group_by_place_not_by_text() -> None:
    """The same line with another id in its message has the same fingerprint; another place has not."""

    def fail(text: str) -> ErrorReport:
        try:
            raise ValueError(text)
        except ValueError as exc:
            return ErrorReport.from_exception(exc)

    assert fail("order 1").fingerprint == fail("order 2").fingerprint
    assert fail("x").fingerprint != ErrorReport.from_exception(ValueError("x")).fingerprint
    assert "order 1" in fail("order 1").traceback


def test_any_exception_can_be_stored() -> None:
    """NUL, lone surrogates, endless texts, a __str__ that raises."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "cannot be shown" in ErrorReport.from_exception(Broken()).message
    report = ErrorReport.from_exception(ValueError("a\x00\ud800" + "x" * 100_000))
    assert len(report.message) <= 2000
    assert "\x00" not in storable("a\x00b", 10)
    report.message.encode()


def test_log_lines_are_one_line_each() -> None:
    """Control characters, quotes and empty values are escaped."""
    assert logs._escape("a b\r\n\u2028\x85") == r'"a b\r\n\u2028\x85"'
    assert logs._escape('say "hi"') == r'"say \"hi\""'
    assert logs._escape(r"x\" forged=1") == r'"x\\\" forged=1"'
    assert (logs._escape(""), logs._escape("plain-é"), logs._escape(0.12345)) == ('""', "plain-é", "0.123")


def test_retry_checks_its_arguments() -> None:
    """A negative wait makes no sense."""
    assert Retry(after=3).after == timedelta(seconds=3)
    with pytest.raises(ValueError, match="negative"):
        Retry(after=-1)


def test_every_exported_name_is_there() -> None:
    """The package's lazy names resolve, and unknown ones say so."""
    for name in reliable_messaging.__all__:
        assert getattr(reliable_messaging, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        reliable_messaging.nonsense
    assert issubclass(reliable_messaging.PermanentError, ReliableMessagingError)
    assert "enqueue" in dir(reliable_messaging)


def test_the_package_can_be_imported_before_django_is_ready() -> None:
    """As INSTALLED_APPS does: no settings, no app registry."""
    import subprocess
    import sys

    code = "import reliable_messaging; print(json.dumps(reliable_messaging.__version__))"
    done = subprocess.run(
        [sys.executable, "-c", "import json; " + code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": ""},
        cwd=Path.cwd(),
    )
    assert json.loads(done.stdout) == reliable_messaging.__version__
