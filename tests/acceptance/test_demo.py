"""``manage.py demo``: it shows what it says, notices a broken promise, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from example_project.shop.demo.attempt import attempt
from example_project.shop.demo.finding import HARD_SPACE, Finding, compare
from example_project.shop.demo.report import exit_code, table
from example_project.shop.demo.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PROMISES = 8
DEADLINE = 120

KEPT = Finding(promise="Water is wet", seen="1 wet hand", kept=True)
BROKEN = Finding(promise="Fire is cold", seen="1 burnt hand", kept=False)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {"DJANGO_SETTINGS_MODULE": "example_project.settings", "EXAMPLE_DATA_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, ROOT / "manage.py", "demo"],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_demo_keeps_every_promise(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    """The demonstration ends by itself with exit code 0, a verdict for each promise, and no data left."""
    output, _ = demo.communicate(timeout=DEADLINE)
    assert demo.returncode == 0, output
    assert re.findall(r"  (kept|BROKEN)$", output, re.MULTILINE) == ["kept"] * PROMISES
    assert "10 orders with one stock move" in output
    assert "lease awaited, by another worker" in output
    assert "1 message, made when due" in output
    assert re.search(r"0 due times missed, ([5-9]|\d\d) runs", output)
    assert "Try next:" in output
    assert list((tmp_path / "demo").iterdir()) == []


def test_ctrl_c_ends_the_workers_too(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    """An interrupted demonstration says so by its exit code; its workers and its data are gone."""
    assert demo.stdout is not None
    line = next(line for line in demo.stdout if "runs as processes" in line)
    workers = [int(pid) for pid in re.findall(r"\d+", line.partition("processes")[2])]
    assert [_is_running(pid) for pid in workers] == [True, True]
    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=DEADLINE)
    assert demo.returncode == 128 + signal.SIGINT
    assert [_is_running(pid) for pid in workers] == [False, False]
    assert list((tmp_path / "demo").iterdir()) == []


@pytest.mark.parametrize(
    ("findings", "code"), [([KEPT], 0), ([KEPT, BROKEN], 1), ([BROKEN, KEPT], 1), ([], 1)]
)
def test_broken_promise_is_an_error(findings: list[Finding], code: int) -> None:
    """One broken promise among kept ones, or nothing shown at all, makes the exit code 1."""
    assert exit_code(findings) == code


def test_table_is_aligned_and_names_what_is_broken() -> None:
    """Each column begins at the same place in every line, and a broken promise stands out."""
    assert table([KEPT, BROKEN]).splitlines() == [
        "promise       seen          verdict",
        "------------  ------------  -------",
        "Water is wet  1 wet hand    kept",
        "Fire is cold  1 burnt hand  BROKEN",
    ]


def test_fact_that_differs_breaks_the_promise() -> None:
    """A finding is broken by one fact that differs, which says what was expected, or is missing."""
    expected = {"orders": 2, "lease": "awaited"}
    assert compare("p", expected=expected, seen=expected).kept
    wrong = compare("p", expected=expected, seen={"orders": 3, "lease": "awaited"})
    assert not wrong.kept
    assert wrong.seen.replace(HARD_SPACE, " ") == "3 orders (not 2), lease awaited"
    assert not compare("p", expected=expected, seen={"orders": 2}).kept


def test_step_that_waits_in_vain_breaks_its_promise() -> None:
    """A deadline that passes is not an error of the demonstration: the promise was not kept."""

    def wait_in_vain(scene: Any) -> NoReturn:
        wait_until("the moon", lambda: False, seconds=0)
        raise AssertionError

    found = attempt("Patience helps", wait_in_vain, scene=None)  # type: ignore[arg-type]
    assert found == Finding(promise="Patience helps", seen="not within 0 s: the moon", kept=False)


def test_step_that_fails_breaks_its_promise() -> None:
    """An unexpected error in a step is seen in the table, and the other steps still run."""

    def fail(scene: Any) -> NoReturn:
        raise ZeroDivisionError("no luck")

    found = attempt("Luck holds", fail, scene=None)  # type: ignore[arg-type]
    assert found == Finding(promise="Luck holds", seen="ZeroDivisionError: no luck", kept=False)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
