"""``make guards``: takes each guard away in turn, and demands that its test fails."""

from __future__ import annotations

import argparse
import importlib.util
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from tests.services import MARIADB_PORT, answers

from . import GUARDS, PARTS, page
from .copy import TIME_LIMIT, Copy
from .guard import Guard


def main(arguments: list[str] | None = None) -> int:
    given = _arguments(arguments)
    guards = _chosen(GUARDS, given.only)
    if not (answers(MARIADB_PORT) and importlib.util.find_spec("MySQLdb")):
        if given.write:
            raise SystemExit("--write needs MariaDB: some guards only show there.")
        print("Without MariaDB, the guards that only show there are not tried.", flush=True)
        guards = [guard for guard in guards if "mariadb" not in guard.databases]
    with tempfile.TemporaryDirectory(prefix="rm_guards_") as directory:
        copies = [Copy.of_tree(Path(directory) / str(number)) for number in range(given.jobs)]
        if not (given.mutated_only or _all_pass(copies[0], guards)):
            return 1
        survivors = _survivors(copies, guards)
    if survivors:
        print(f"\n{len(survivors)} of {len(guards)} guards can be removed and nothing fails:")
        print("\n".join(f"  {guard.name}  {guard.test}" for guard in survivors))
        return 1
    if given.write:
        page.PAGE.write_text(page.page(PARTS))
    print(f"\n{page.table(guards)}\n\n{len(guards)} guards, each with a test that fails without it.")
    return 0


def _all_pass(copy: Copy, guards: Sequence[Guard]) -> bool:
    """With all guards in place: else a test that always fails would prove every guard."""
    began = time.monotonic()
    tests = sorted({guard.test for guard in guards})
    verdict = copy.run(tests, seconds=TIME_LIMIT + 20 * len(tests))
    if not verdict.passed:
        print(verdict.output[-5000:])
    print(f"{time.monotonic() - began:6.0f} s  with all guards in place: {verdict.summary}", flush=True)
    return verdict.passed


def _survivors(copies: Sequence[Copy], guards: Sequence[Guard]) -> list[Guard]:
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def is_missed(guard: Guard) -> bool:
        copy = free.get()
        try:
            return _is_missed(copy, guard)
        finally:
            free.put(copy)

    pool = ThreadPoolExecutor(len(copies))
    try:
        missed = list(pool.map(is_missed, guards))
    finally:
        pool.shutdown(cancel_futures=True)
    return [guard for guard, was_missed in zip(guards, missed, strict=True) if not was_missed]


def _is_missed(copy: Copy, guard: Guard) -> bool:
    began = time.monotonic()
    with copy.without(guard):
        verdict = copy.run([guard.test], databases=guard.databases, seconds=TIME_LIMIT)
    word = "missed" if verdict.failed else "SURVIVED" if verdict.passed else "BROKEN"
    print(f"{time.monotonic() - began:6.0f} s  {word}: {guard.name}  {verdict.reason[:100]}", flush=True)
    return verdict.failed


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.guards", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="this guard; may be repeated")
    parser.add_argument(
        "--mutated-only", action="store_true", help="leave out the run with all guards in place"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many at once (default %(default)s)")
    parser.add_argument("--write", action="store_true", help=f"write docs/explanation/{page.PAGE.name}")
    given = parser.parse_args(arguments)
    if given.write and (given.only or given.mutated_only):
        parser.error("--write is for the whole run: a page of a part would look like all of it")
    return given


def _chosen(guards: Sequence[Guard], only: list[str] | None) -> list[Guard]:
    names = [guard.name for guard in guards]
    if unknown := set(only or ()) - set(names):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
    return [guard for guard in guards if not only or guard.name in only]


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # so that the copy is removed


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(main())
