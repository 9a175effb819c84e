"""What a step of the demonstration found out about one promise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Fact = int | str
HARD_SPACE = "\u00a0"
"""Inside a fact, so that the table breaks lines between facts only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    promise: str
    seen: str
    kept: bool


def compare(promise: str, *, expected: Mapping[str, Fact], seen: Mapping[str, Fact]) -> Finding:
    """Kept when every fact is as expected. Those that are not say what was expected instead."""
    facts = [_fact(name, seen.get(name, "nothing"), wanted) for name, wanted in expected.items()]
    return Finding(promise=promise, seen=", ".join(facts), kept=dict(expected) == dict(seen))


def _fact(name: str, seen: Fact, wanted: Fact) -> str:
    text = f"{seen} {name}" if isinstance(seen, int) else f"{name} {seen}"
    return text.replace(" ", HARD_SPACE) if seen == wanted else f"{text} (not {wanted})"
