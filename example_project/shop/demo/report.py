"""The table at the end, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from textwrap import wrap

from .finding import HARD_SPACE, Finding

HEADINGS = ("promise", "seen", "verdict")
SEEN_WIDTH = 50


def table(findings: Sequence[Finding]) -> str:
    rows = [HEADINGS, *(row for finding in findings for row in _rows(finding))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(_line(row, widths) for row in (rows[0], rule, *rows[1:]))


def exit_code(findings: Sequence[Finding]) -> int:
    """0 only when something was tested and every promise was kept."""
    return 0 if findings and all(finding.kept for finding in findings) else 1


def _rows(finding: Finding) -> list[tuple[str, ...]]:
    verdict = "kept" if finding.kept else "BROKEN"
    seen = wrap(finding.seen, SEEN_WIDTH) or [""]
    return list(zip_longest([finding.promise], seen, [verdict], fillvalue=""))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    return "  ".join(cells).replace(HARD_SPACE, " ").rstrip()
