"""The curves of a run, as one picture: throughput against batch size, and against history."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from .figures import Figure
from .svg import Line, Panel, drawing

TITLE = "Throughput against batch size, and against history"
MAIN = "PostgreSQL"
"""The database whose batch sizes are shown; history is shown for all."""
BATCH, HISTORY = "batch", "history"


def picture(figures: Sequence[Figure]) -> str:
    panels = [panel for panel in (_batches(figures), _history(figures)) if panel.lines]
    if not panels:
        raise SystemExit("The run has no curves: run the measures batches and history first.")
    return drawing(TITLE, panels)


def _batches(figures: Sequence[Figure]) -> Panel:
    found = _points(figures, BATCH, MAIN)
    lines = [
        Line(name="one worker", points=[(x, median(figure.ours)) for x, figure in found]),
        Line(name="plain psycopg loop", points=[(x, median(figure.reference)) for x, figure in found]),
    ]
    return Panel(
        title="Batch size",
        x_label=f"messages claimed at once ({MAIN})",
        y_label="messages acknowledged a second, no-op handler",
        ticks=[(x, f"{x:g}") for x, _ in found],
        lines=lines if found else [],
        show=lambda value: f"{value:,.0f}",
    )


def _history(figures: Sequence[Figure]) -> Panel:
    """As a share of the rate with nothing kept: rates of different minutes cannot be compared."""
    databases = list(dict.fromkeys(figure.database for figure in figures))
    found = {database: _points(figures, HISTORY, database) for database in databases}
    lines = [
        Line(name=database, points=[(0.0, 1.0), *((x, figure.ratio or 0.0) for x, figure in points)])
        for database, points in found.items()
        if points
    ]
    places = sorted({x for line in lines for x, _ in line.points})
    return Panel(
        title="History",
        x_label="finished messages kept in the table",
        y_label="rate, as a share of the rate with none",
        ticks=[(x, _short(x)) for x in places],
        lines=lines,
        show=lambda value: f"{value:.0%}",
    )


def _points(figures: Sequence[Figure], curve: str, database: str) -> list[tuple[float, Figure]]:
    found = [
        (figure.point.x, figure)
        for figure in figures
        if figure.database == database and figure.point is not None and figure.point.curve == curve
    ]
    return sorted(found, key=lambda point: point[0])


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g} million"
    return f"{value:,.0f}"
