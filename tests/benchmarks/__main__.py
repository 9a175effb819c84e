"""``python -m tests.benchmarks``: every figure beside its plain reference, in one run.

Absolute figures belong to the machine and the minute; the ratios are what counts. Sides take
turns, each figure is the median of its rounds. A run makes databases of its own and drops them.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from functools import reduce
from pathlib import Path
from types import FrameType

import django

from tests.services import RUN_DIR

from . import report
from .databases import NAMES as DATABASES
from .environment import DATABASE, reach
from .measures import NAMES as MEASURES
from .record import Record

DEFAULT_OUTPUT = Path("var/bench.json")


def main() -> None:
    given = _arguments()
    if given.markdown or given.picture:
        _show(given)
        return
    record = _on_all(given) if given.database == "all" else _on_one(given)
    record.save(given.output)
    if not given.quiet:
        print(report.table(record.figures))
        print(f"\n{report.about(record.about)} Written to {given.output}.")
    if record.about["failed"]:
        raise SystemExit(f"Not measured: {', '.join(record.about['failed'])}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    add = parser.add_argument
    add("measures", nargs="*", metavar="measure", help=f"of {', '.join(MEASURES)}; default: all")
    add("--database", choices=[*DATABASES, "all"], default="all", help="default: all that answer")
    add("--quick", action="store_true", help="one small round: to see that it runs, not to quote")
    add("--output", type=Path, default=DEFAULT_OUTPUT, help=f"JSON file (default {DEFAULT_OUTPUT})")
    add("--markdown", action="store_true", help="print the table of that file for the docs; nothing is run")
    add("--picture", type=Path, help="draw the curves of that file as SVG; nothing is run")
    add("--quiet", action="store_true", help="write the file only")
    given = parser.parse_args()
    given.measures = given.measures or list(MEASURES)
    if unknown := set(given.measures) - set(MEASURES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    return given


def _on_one(given: argparse.Namespace) -> Record:
    os.environ[DATABASE] = given.database
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.benchmarks.settings"
    django.setup()
    from .run import run

    return run(given.measures, quick=given.quick)


def _on_all(given: argparse.Namespace) -> Record:
    """One process for each: Django has one set of settings. What does not answer says so, and is left out."""
    records = []
    for database in DATABASES:
        if isinstance(missing := reach(database), str):
            print(missing, file=sys.stderr, flush=True)
            continue
        part = RUN_DIR / f"{database}.json"
        options = ["--database", database, "--output", str(part), "--quiet", *["--quick"][: given.quick]]
        _run([*given.measures, *options])
        records.append(Record.load(part))
    return reduce(Record.joined, records)


def _run(arguments: list[str]) -> None:
    process = subprocess.Popen([sys.executable, "-m", __package__, *arguments])
    try:
        process.wait()
    finally:
        process.terminate()  # when we are to leave: it has databases to drop
        process.wait()


def _show(given: argparse.Namespace) -> None:
    record = Record.load(given.output)
    if given.markdown:
        print(report.markdown(record.figures))
    if given.picture:
        from .picture import picture

        given.picture.write_text(picture(record.figures))


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # so that processes are ended and the databases are dropped


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    main()
