"""The benchmark still runs: nobody would notice otherwise until figures are wanted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_cheap_measures_run_on_sqlite(tmp_path):
    """A worker drains, producers enqueue, and every figure has its reference."""
    output = tmp_path / "bench.json"
    environment = {name: value for name, value in os.environ.items() if name != "TEST_RUN_DIR"}
    options = ["--quick", "--database", "sqlite", "atomic", "enqueue"]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", *options, "--output", str(output)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(output.read_text())["figures"]
    assert [figure["measure"] for figure in figures] == [
        "drain, atomic, one INSERT",
        "enqueue in a business transaction",
        "enqueue_many of 1,000",
    ]
    assert all(figure["ratio"]["median"] > 0 for figure in figures)
    assert "drain, atomic, one INSERT" in ran.stdout
