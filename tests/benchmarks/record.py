"""What a run leaves behind: its figures, and where and when they were taken. Kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .figures import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    figures: Sequence[Figure]
    about: dict[str, Any]

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {**self.about, "figures": [figure.as_json() for figure in self.figures]}
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> Record:
        about = json.loads(path.read_text())
        return cls(figures=[Figure.from_json(figure) for figure in about.pop("figures")], about=about)

    def joined(self, other: Record) -> Record:
        """Both, as one run on several databases."""
        mine, theirs = self.about, other.about
        about = {
            **mine,
            "seconds": mine["seconds"] + theirs["seconds"],
            "source": {"before": mine["source"]["before"], "after": theirs["source"]["after"]},
            "load": {"before": mine["load"]["before"], "after": theirs["load"]["after"]},
            "failed": [*mine["failed"], *theirs["failed"]],
            "databases": {**mine["databases"], **theirs["databases"]},
        }
        return Record(figures=[*self.figures, *other.figures], about=about)
