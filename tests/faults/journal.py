"""What handlers did outside the database, as they wrote it down (``tests/testapp/outside.py``)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """One run of a message's handler."""

    number: int
    attempt: int


class Line(NamedTuple):
    at: float
    """On the monotonic clock, which all processes of a machine share."""
    run: Run
    step: int


class Journal:
    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    @property
    def environment(self) -> dict[str, str]:
        return {"TEST_JOURNAL": str(self._path)}

    def lines(self, *, after: float = 0.0, of: Collection[Run] | None = None) -> list[Line]:
        found = [_parse(text) for text in self._path.read_text().splitlines()]
        return [line for line in found if line.at > after and (of is None or line.run in of)]

    def begun(self, *, after: float = 0.0, of: Collection[Run] | None = None) -> set[Run]:
        return {line.run for line in self.lines(after=after, of=of) if line.step == 0}


def _parse(text: str) -> Line:
    at, number, attempt, step = text.split()
    return Line(float(at), Run(int(number), int(attempt)), int(step))
