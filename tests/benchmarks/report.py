"""The figures as a table to read and as a file to keep."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from .figures import Figure

HEADINGS = ("measure", "ours", "reference", "ratio", "range", "target", "met")


def table(figures: Sequence[Figure]) -> str:
    rows = [HEADINGS, *(_cells(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    notes = [f"{figure.measure}: {figure.note}" for figure in figures if figure.note]
    return "\n".join([*(line.rstrip() for line in lines), *([""] if notes else []), *notes])


def save(path: Path, figures: Sequence[Figure], about: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {**about, "figures": [figure.as_json() for figure in figures]}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _cells(figure: Figure) -> tuple[str, ...]:
    reference = ""
    if figure.reference:
        reference = f"{_number(median(figure.reference))} ({figure.reference_name})"
    return (
        figure.measure,
        f"{_number(median(figure.ours))} {figure.unit}",
        reference,
        "" if figure.ratio is None else f"{figure.ratio:.2f}",
        _rounds(figure),
        str(figure.target or ""),
        {None: "", True: "yes", False: "no"}[figure.met],
    )


def _rounds(figure: Figure) -> str:
    """From the least to the greatest round: how far to trust the median."""
    values = figure.ratios or figure.ours
    return f"{_number(min(values))} … {_number(max(values))}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "n/a"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
