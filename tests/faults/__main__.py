"""``make chaos``: every scenario at length, on every database, as one table."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import django

if TYPE_CHECKING:
    from .chaos import Entry

ALIASES = {"sqlite": "default", "postgres": "postgres", "mariadb": "mariadb"}
PROOF = Path(__file__).resolve().parent.parent.parent / "docs" / "explanation" / "proof.md"
SEED = 20261117


def main(arguments: list[str] | None = None) -> int:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    from django.conf import settings

    from . import chaos, proof
    from .result import table

    given = _arguments(arguments, [name for name, alias in ALIASES.items() if alias in settings.DATABASES])
    entries = _chosen(chaos.entries(), given.only)
    databases = [ALIASES[name] for name in given.databases]
    for line in settings.MISSING_SERVICES:
        print(line, flush=True)
    logging.getLogger("reliable_messaging").addHandler(logging.NullHandler())  # scenarios reap too
    began, results = time.monotonic(), []
    with test_databases():
        for result in chaos.run(entries, databases=databases, seed=given.seed):
            results.append(result)
            print(f"{time.monotonic() - began:6.0f} s {table([result]).splitlines()[-1]}", flush=True)
            for problem in result.problems:
                print(f"         {problem}", flush=True)
        seconds = time.monotonic() - began
        if given.write:
            PROOF.write_text(proof.page(results, databases=databases, seed=given.seed, seconds=seconds))
    print(f"\n{table(results)}\n\n{proof.verdict(results)}\n{seconds:.0f} s, seed {given.seed}.")
    return 0 if results and all(result.clean for result in results) else 1


@contextmanager
def test_databases() -> Iterator[None]:
    """All of them, whatever is chosen: handlers may use another alias."""
    from django.conf import settings
    from django.db import connections
    from django.test.utils import setup_databases, teardown_databases

    made = setup_databases(verbosity=0, interactive=False, aliases=set(settings.DATABASES))
    try:
        yield
    finally:
        connections.close_all()
        teardown_databases(made, verbosity=0)


def _arguments(arguments: list[str] | None, known: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="this scenario, or this family of them; may be repeated",
    )
    parser.add_argument("--databases", default=",".join(known), help="parted by commas (default %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="of every random choice (default %(default)s)")
    parser.add_argument("--write", action="store_true", help=f"write docs/explanation/{PROOF.name}")
    given = parser.parse_args(arguments)
    given.databases = given.databases.split(",")
    if unknown := set(given.databases) - set(known):
        parser.error(f"not a database here: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if given.write and (given.only or given.databases != known):
        parser.error("--write is for the whole run: a page of a part would look like all of it")
    return given


def _chosen(entries: list[Entry], only: list[str] | None) -> list[Entry]:
    families, names = list(dict.fromkeys(e.family for e in entries)), [e.name for e in entries]
    if unknown := set(only or ()) - {*families, *names}:
        known = f"families {', '.join(families)}; scenarios {', '.join(names)}"
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; there are: {known}")
    return [entry for entry in entries if not only or {entry.name, entry.family} & set(only)]


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # so that processes are ended and the databases are dropped


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(main())
