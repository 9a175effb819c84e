"""The run of ``make chaos``, with scenarios that do nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ALIASES
from tests.faults import __main__ as command
from tests.faults import chaos
from tests.faults.chaos import Entry
from tests.faults.result import Result
from tests.tables import wipe
from tests.testapp.models import Order

Run = Callable[..., int]


@pytest.fixture
def run(
    django_db_setup: None, django_db_blocker: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Run]:
    """The command on these entries, with the databases of the test run."""

    def run_command(entries: list[Entry], *arguments: str) -> int:
        monkeypatch.setattr(chaos, "entries", lambda: entries)
        return command.main(list(arguments))

    monkeypatch.setattr(command, "test_databases", nullcontext)
    monkeypatch.setattr(command, "PROOF", tmp_path / "proof.md")
    with django_db_blocker.unblock():
        yield run_command
        for alias in ALIASES:
            wipe(alias)


def calm(using: str, seed: int, messages: int = 0) -> Result:
    assert not Order.objects.using(using).exists()
    Order.objects.using(using).create(number=seed)
    return Result(scenario="calm", database=using, messages=messages, indeterminate=2)


def broken(using: str, seed: int) -> Result:
    raise ZeroDivisionError("the scenario itself is broken")


def several(using: str, seed: int) -> list[Result]:
    return [Result(scenario=f"several {n}", database=using) for n in range(2)]


def test_a_scenario_that_raises_is_a_row_and_the_run_goes_on(using: str) -> None:
    """Each starts with empty tables; results come one by one or in a list."""
    entries = [Entry("calm", calm, {"messages": 7}), Entry("broken", broken), Entry("calm again", calm)]
    entries += [Entry("several", several), Entry("elsewhere", broken, databases=("other",))]
    results = list(chaos.run(entries, databases=[using], seed=5))
    assert [r.scenario for r in results] == ["calm", "broken", "calm", "several 0", "several 1"]
    assert results[0].messages == 7
    assert "the scenario itself is broken" in results[1].problems[0]
    assert [result.clean for result in results] == [True, False, True, True, True]


def test_the_exit_code_tells_whether_all_was_clean(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of nothing is no success either. The error is shown below the table."""
    assert run([Entry("calm", calm)]) == 0
    assert run([]) == 1
    capsys.readouterr()
    assert run([Entry("broken", broken), Entry("calm", calm)]) == 1
    assert "ZeroDivisionError: the scenario itself is broken" in capsys.readouterr().out
    assert run([Entry("broken", broken), Entry("calm", calm)], "--only", "calm") == 0
    assert run([Entry("broken", broken), Entry("calm", calm, family="weather")], "--only", "weather") == 0


def test_an_unknown_name_is_refused(run: Run) -> None:
    """Else a misspelt scenario would be a clean run."""
    with pytest.raises(SystemExit, match="unknown: clam"):
        run([Entry("calm", calm)], "--only", "clam")
    with pytest.raises(SystemExit):
        run([Entry("calm", calm)], "--databases", "oracle")


def test_every_scenario_has_a_family() -> None:
    """By which a part of the whole run can be chosen."""
    assert {entry.family for entry in chaos.entries()} == set(chaos.FAMILIES)


def test_the_page_has_the_table_and_the_machine(run: Run) -> None:
    """Only of a whole run: a part would pass for all."""
    run([Entry("calm", calm)], "--write", "--seed", "42")
    page = command.PROOF.read_text()
    assert "| calm " in page
    assert "| seed | 42 |" in page
    assert "| SQLite | 3." in page
    assert "0 of them not clean" in page
    with pytest.raises(SystemExit):
        run([Entry("calm", calm)], "--write", "--only", "calm")
