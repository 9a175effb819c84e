"""The figures as a table to read: in the terminal, and in the docs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import Any

from .figures import Figure

HEADINGS = ("measure", "ours", "reference", "ratio", "range", "target", "met")
CHANGED = " The package's files changed during the run: do not compare or quote these figures."


def table(figures: Sequence[Figure]) -> str:
    return "\n\n".join(_table(database, of_it) for database, of_it in _by_database(figures))


def markdown(figures: Sequence[Figure]) -> str:
    """The same for the docs, one table for each database."""
    parts = []
    for database, of_it in _by_database(figures):
        rows = [HEADINGS, tuple("---" for _ in HEADINGS), *(_cells(figure) for figure in of_it)]
        parts.append("\n".join([f"**{database}**", "", *(f"| {' | '.join(row)} |" for row in rows)]))
    return "\n\n".join(parts)


def about(facts: dict[str, Any]) -> str:
    """Where and when, in one line."""
    machine, load, source = facts["machine"], facts["load"], facts["source"]
    databases = ", ".join(
        f"{title} {settings['server_version']}" for title, settings in facts["databases"].items()
    )
    line = (
        f"Python {machine['python']}, Django {machine['django']}, {databases}, {machine['cores']} cores; "
        f"load {load['before']:.1f} before, {load['after']:.1f} after; {facts['seconds']} s."
    )
    return line if source["before"] == source["after"] else line + CHANGED


def number(value: float) -> str:
    if math.isnan(value):
        return "n/a"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _by_database(figures: Sequence[Figure]) -> Iterator[tuple[str, list[Figure]]]:
    for database, of_it in groupby(figures, key=lambda figure: figure.database):
        yield database, list(of_it)


def _table(database: str, figures: Sequence[Figure]) -> str:
    rows = [(database, *HEADINGS[1:]), *(_cells(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    notes = [f"{figure.measure}: {figure.note}" for figure in figures if figure.note]
    return "\n".join([*(line.rstrip() for line in lines), *([""] if notes else []), *notes])


def _cells(figure: Figure) -> tuple[str, ...]:
    reference = figure.reference_name
    if figure.reference:
        reference = f"{number(median(figure.reference))} ({figure.reference_name})"
    return (
        figure.measure,
        f"{number(median(figure.ours))} {figure.unit}",
        reference,
        "" if figure.ratio is None else f"{figure.ratio:.2f}",
        _rounds(figure),
        str(figure.target or ""),
        {None: "", True: "yes", False: "no"}[figure.met],
    )


def _rounds(figure: Figure) -> str:
    """From the least to the greatest round: how far to trust the median."""
    values = figure.ratios or figure.ours
    return f"{number(min(values))} … {number(max(values))}"
