"""The table of guards, and the page that shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .guard import ROOT, Guard

PAGE = ROOT / "docs" / "explanation" / "guards.md"
TEXT = """\
# Guards

A guard is a small piece of code that keeps something bad from happening: a comparison in a `WHERE`, a lock,
a count of rows, a check before a commit, a bound, a second try. A guard that no test needs will be removed
one day by someone who tidies up. So each of them has a test that fails without it.

`make guards` shows that: it takes one guard away at a time, runs the test, and demands that it fails. These
tables are what it found; `make guards ARGS=--write` wrote this page. `make guards ARGS='--only {example}'`
tries one of them.

{parts}

{count} guards. The list itself is in [tests/faults/guards](../../tests/faults/guards); `make test` checks
that every piece of code that it names is still there, and every test too.
"""


def table(guards: Sequence[Guard], *, links: bool = False) -> str:
    lines = ["| guard | without it | the test that fails |", "|---|---|---|"]
    return "\n".join([*lines, *(_line(guard, links) for guard in guards)])


def page(parts: Mapping[str, Sequence[Guard]]) -> str:
    guards = [guard for part in parts.values() for guard in part]
    tables = [f"## {title}\n\n{table(part, links=True)}" for title, part in parts.items()]
    return TEXT.format(parts="\n\n".join(tables), count=len(guards), example=guards[0].name)


def _line(guard: Guard, links: bool) -> str:
    test, name = f"`{guard.test_name}`", f"`{guard.name}`"
    if links:
        name = f"[{name}](../../{guard.path})"
        test = f"[{test}](../../{guard.test_file})"
    return f"| {name} | {guard.what_happens} | {test} |"
