"""The list of guards does not rot: each names code and a test that exist."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.faults.guards import GUARDS, Guard
from tests.faults.guards.guard import ROOT


@cache
def source(path: str) -> str:
    return (ROOT / path).read_text()


@cache
def functions(path: str) -> set[str]:
    return {node.name for node in ast.parse(source(path)).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_and_its_test_are_there(guard: Guard) -> None:
    """Its text occurs once, what is put instead is Python, and its test is a function of that file."""
    assert guard.without(source(guard.path)) != source(guard.path)
    assert guard.test_name in functions(guard.test_file), f"there is no {guard.test_name}"


def test_no_guard_is_listed_twice() -> None:
    """Neither by name nor by what is done to the code."""
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)
    assert len({(guard.path, guard.removed, guard.put_instead) for guard in GUARDS}) == len(GUARDS)


def test_a_text_that_is_gone_is_found_out() -> None:
    """Else a guard that was rewritten would count as tried for ever."""
    (guard, *_) = GUARDS
    with pytest.raises(LookupError, match="0 times"):
        guard.without("nothing of the kind")
    with pytest.raises(LookupError, match="2 times"):
        guard.without(guard.removed * 2)
