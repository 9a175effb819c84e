"""What a scenario found: one row of the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

COUNTED = ("lost", "duplicated", "ghosts", "wrongly_dead")
HEADINGS = (
    "scenario",
    "database",
    "messages",
    "faults",
    "lost",
    "duplicated effects",
    "ghosts",
    "wrongly dead",
    "longest recovery (allowed)",
)
NUMBERS = range(2, 8)  # the columns that are aligned to the right


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Commits of unknown outcome are counted, and are no fault: the row in the database decides."""

    scenario: str
    database: str
    messages: int = 0
    faults: int = 0
    lost: int = 0
    duplicated: int = 0
    ghosts: int = 0
    wrongly_dead: int = 0
    indeterminate: int = 0
    recovery: float | None = None
    allowed_recovery: float | None = None
    problems: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return not any(getattr(self, name) for name in COUNTED) and not self.problems and self.in_time

    @property
    def in_time(self) -> bool:
        if self.recovery is None or self.allowed_recovery is None:
            return True
        return self.recovery <= self.allowed_recovery

    def check(self) -> None:
        """Raise when anything is not as it must be, with every number."""
        if not self.clean:
            numbers = "".join(f"\n  {name}: {value!r}" for name, value in asdict(self).items())
            raise AssertionError(f"{self.scenario} on {self.database} is not clean:{numbers}")


def table(results: Iterable[Result]) -> str:
    """Markdown that also reads well in a terminal."""
    rows = [HEADINGS, *(_cells(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    rule = [
        "-" * (width - 1) + ":" if column in NUMBERS else "-" * width for column, width in enumerate(widths)
    ]
    return "\n".join(_line(row, widths) for row in [rows[0], tuple(rule), *rows[1:]])


def _cells(result: Result) -> tuple[str, ...]:
    counts = [result.messages, result.faults, *(getattr(result, name) for name in COUNTED)]
    scenario = result.scenario.replace("|", "\\|")
    return (scenario, result.database, *(f"{count:,}" for count in counts), _recovery(result))


def _recovery(result: Result) -> str:
    if result.recovery is None:
        return ""
    allowed = "" if result.allowed_recovery is None else f" ({result.allowed_recovery:.1f} s)"
    return f"{result.recovery:.1f} s{allowed}"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [
        cell.rjust(width) if column in NUMBERS else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return f"| {' | '.join(cells)} |"
