"""Tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def in_columns(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """One line for each row, the columns as wide as they must be."""
    lines = [heading, *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
