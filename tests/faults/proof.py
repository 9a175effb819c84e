"""The page that shows what a run found, and where it ran."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

import django
from django.conf import settings
from django.db import connections

import reliable_messaging

from .result import Result, table

PAGE = """\
# Proof

What became of the messages when workers and databases were killed, stopped and cut off.
`make chaos ARGS=--write` ran this and wrote this page. `make test` runs short versions of the same scenarios.

{table}

- lost: the order was committed, and its message has neither taken effect nor rightly gone dead
- duplicated effects: of atomic handlers, beyond the first
- ghosts: effects or messages of transactions that were rolled back
- wrongly dead: dead, and not to blame
- longest recovery: from a fault until the last message that it hit was claimed again or settled

{verdict}

## The run

| what | value |
|---|---|
{facts}
"""


def page(results: Sequence[Result], *, databases: Iterable[str], seed: int, seconds: float) -> str:
    facts = _facts(databases) | {
        "seed": str(seed),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "total time": f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds",
    }
    return PAGE.format(
        table=table(results),
        verdict=verdict(results),
        facts="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
    )


def verdict(results: Sequence[Result]) -> str:
    """One sentence, and each thing that must not be."""
    unclean = [result for result in results if not result.clean]
    unknown = sum(result.indeterminate for result in results)
    said = f"{len(results)} rows, {len(unclean)} of them not clean."
    if unknown:
        said += f" {unknown:,} commits had no answer; there the order in the database decided."
    reasons = [
        f"- {result.scenario} on {result.database}: {why}" for result in unclean for why in _reasons(result)
    ]
    return "\n".join([said, "", *reasons] if reasons else [said])


def _reasons(result: Result) -> list[str]:
    problems = [" ".join(problem.split()).replace("<", "&lt;") for problem in result.problems]
    if not result.in_time:
        problems.append(f"recovery took {result.recovery:.1f} s, allowed are {result.allowed_recovery:.1f} s")
    return problems or ["see the table"]


def _facts(databases: Iterable[str]) -> dict[str, str]:
    return {
        "reliable_messaging": reliable_messaging.__version__,
        "Python": platform.python_version(),
        "Django": django.get_version(),
        **{connections[using].display_name: _version(using) for using in databases},
        **({"not run": " ".join(settings.MISSING_SERVICES)} if settings.MISSING_SERVICES else {}),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
    }


def _version(using: str) -> str:
    return ".".join(map(str, connections[using].get_database_version()))
