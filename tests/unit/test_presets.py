"""--preset: options for a kind of site."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from reliable_messaging.management.commands import run_outbox_worker
from reliable_messaging.workers import WorkerOptions
from reliable_messaging.workers.presets import PRESETS

REFERENCE = Path(__file__).resolve().parents[2] / "docs/reference/command.md"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[WorkerOptions]:
    """The options of workers that would have been started."""
    found: list[WorkerOptions] = []
    monkeypatch.setattr(
        run_outbox_worker, "run_worker_process", lambda options, processes: found.append(options)
    )
    monkeypatch.setattr(run_outbox_worker, "show_log_lines", lambda verbosity: None)
    return found


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_sets_its_options(name: str, started: list[WorkerOptions]) -> None:
    """Those, and no others."""
    call_command("run_outbox_worker", "--preset", name)
    call_command("run_outbox_worker")
    with_it, without = started
    changed = {
        f.name: getattr(with_it, f.name)
        for f in fields(WorkerOptions)
        if getattr(with_it, f.name) != getattr(without, f.name)
    }
    assert changed == PRESETS[name]


@override_settings(RELIABLE_MESSAGING={"BATCH_SIZE": 7, "LEASE": 33})
def test_what_is_given_goes_before_the_preset_and_that_before_the_settings(
    started: list[WorkerOptions],
) -> None:
    """An option, the preset, the setting, in this order."""
    call_command("run_outbox_worker", "--preset", "throughput", "--chunk-size", "3")
    (options,) = started
    assert (options.chunk_size, options.batch_size, options.lease) == (3, 500, timedelta(seconds=33))


def test_an_unknown_preset_is_refused_with_the_known_ones(started: list[WorkerOptions]) -> None:
    """Before anything starts."""
    with pytest.raises(CommandError, match=r"throughput.*low-resource.*real-time"):
        call_command("run_outbox_worker", "--preset", "fast")
    assert started == []


def test_the_reference_tells_what_is_in_the_presets() -> None:
    """Row by row, column by column."""
    lines = [line.split("|")[1:-1] for line in REFERENCE.read_text().splitlines() if line.startswith("|")]
    at = next(number for number, cells in enumerate(lines) if cells[0].strip() == "Preset")
    columns = [cell.strip().strip("`").removeprefix("--").replace("-", "_") for cell in lines[at][2:]]
    told: dict[str, Any] = {
        cells[0].strip().strip("`"): {
            column: float(cell) for column, cell in zip(columns, cells[2:], strict=True) if cell.strip()
        }
        for cells in lines[at + 3 : at + 3 + len(PRESETS)]
    }
    shown = {
        name: {k: v.total_seconds() if isinstance(v, timedelta) else float(v) for k, v in preset.items()}
        for name, preset in PRESETS.items()
    }
    assert told == shown
