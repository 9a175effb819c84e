"""``python -m tests.benchmarks``: every figure beside its plain reference, in one run.

Absolute figures belong to the machine and the minute; the ratios are what counts. Sides take
turns, each figure is the median of its rounds. A run makes a database of its own and drops it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import django

MEASURES = ("drain", "enqueue", "latency", "idle")
DEFAULT_OUTPUT = Path("var/bench.json")


def main() -> None:
    given = _arguments()
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.benchmarks.settings"
    django.setup()
    from . import machine, report
    from .database import throwaway_database
    from .scale import FULL, QUICK

    scale = QUICK if given.quick else FULL
    began, load_before, source = datetime.now(timezone.utc), machine.load(), machine.source_digest()
    figures = []
    with throwaway_database():
        for name in given.measures:
            started = time.monotonic()
            figures += import_module(f"{__package__}.{name}").measure(scale)
            print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        about = {
            "began": began.isoformat(timespec="seconds"),
            "seconds": round((datetime.now(timezone.utc) - began).total_seconds()),
            "scale": asdict(scale),
            "source": {"before": source, "after": machine.source_digest()},
            "machine": machine.facts(),
            "load": {"before": load_before, "after": machine.load()},
        }
    print(report.table(figures))
    _say(about, given.output)
    report.save(given.output, figures, about)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "measures", nargs="*", metavar="measure", help=f"of {', '.join(MEASURES)}; default: all"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one small round: to see that it runs, not to quote"
    )
    parser.add_argument(
        "--output", type=Path, default=DEFAULT_OUTPUT, help=f"JSON file (default {DEFAULT_OUTPUT})"
    )
    given = parser.parse_args()
    given.measures = given.measures or list(MEASURES)
    if unknown := set(given.measures) - set(MEASURES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    return given


def _say(about: dict[str, Any], output: Path) -> None:
    facts, load, source = about["machine"], about["load"], about["source"]
    print(
        f"\nPython {facts['python']}, Django {facts['django']}, "
        f"PostgreSQL {facts['postgres']['server_version']}, {facts['cores']} cores; "
        f"load {load['before']:.1f} before, {load['after']:.1f} after; "
        f"{about['seconds']} s. Written to {output}."
    )
    if source["before"] != source["after"]:
        print("The package's files changed during the run: do not compare or quote these figures.")


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # so that processes are ended and the database is dropped


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    main()
