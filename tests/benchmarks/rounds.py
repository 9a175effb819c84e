"""Sides that take turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def alternate(sides: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Run every side in every round. Each second round goes backwards, so that no side always
    comes after the same other one. The machine drifts by a factor of two within minutes; what was
    measured minutes apart cannot be divided."""
    results: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(rounds):
        names = list(sides) if number % 2 == 0 else list(reversed(sides))
        for name in names:
            results[name].append(sides[name]())
    return results
