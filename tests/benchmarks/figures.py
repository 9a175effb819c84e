"""A figure: what was measured on both sides, round by round, and what was hoped for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A bound on the ratio, or on our own value where there is nothing to divide by."""

    must: float
    aim: float
    at_least: bool = True
    of_ratio: bool = True

    def met_by(self, value: float) -> bool:
        return value >= self.must if self.at_least else value <= self.must

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.must:g} (aim {self.aim:g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Where on which curve of the picture a figure lies."""

    curve: str
    x: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    measure: str
    unit: str
    ours: Sequence[float]
    """One value for each round."""
    reference: Sequence[float] = ()
    """The other side of the same rounds; empty where there is none."""
    reference_name: str = ""
    target: Target | None = None
    note: str = ""
    point: Point | None = None
    database: str = ""

    @property
    def ratios(self) -> list[float]:
        """Round by round: both sides of a round met the same weather."""
        if not self.reference:
            return []
        pairs = zip(self.ours, self.reference, strict=True)
        return [ours / reference for ours, reference in pairs if reference]

    @property
    def ratio(self) -> float | None:
        return median(self.ratios) if self.ratios else None

    @property
    def met(self) -> bool | None:
        """Whether the target was met; None without a target."""
        if self.target is None:
            return None
        value = self.ratio if self.target.of_ratio else median(self.ours)
        return None if value is None else self.target.met_by(value)

    def on(self, database: str, *, with_targets: bool) -> Figure:
        """The figure as one of this database's."""
        return replace(self, database=database, target=self.target if with_targets else None)

    def as_json(self) -> dict[str, Any]:
        return {
            "database": self.database,
            "measure": self.measure,
            "unit": self.unit,
            "ours": {"median": median(self.ours), "rounds": list(self.ours)},
            "reference": {
                "name": self.reference_name,
                "median": median(self.reference) if self.reference else None,
                "rounds": list(self.reference),
            },
            "ratio": {"median": self.ratio, "rounds": self.ratios},
            "target": asdict(self.target) if self.target else None,
            "met": self.met,
            "note": self.note,
            "point": asdict(self.point) if self.point else None,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Figure:
        return cls(
            database=content["database"],
            measure=content["measure"],
            unit=content["unit"],
            ours=content["ours"]["rounds"],
            reference=content["reference"]["rounds"],
            reference_name=content["reference"]["name"],
            target=Target(**content["target"]) if content["target"] else None,
            note=content["note"],
            point=Point(**content["point"]) if content["point"] else None,
        )
