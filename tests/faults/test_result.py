"""The row of a scenario, and the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tests.faults.result import Result, table

CLEAN = Result(
    scenario="kills",
    database="SQLite",
    messages=1000,
    faults=20,
    indeterminate=3,
    recovery=1.23,
    allowed_recovery=2.5,
)


@pytest.mark.parametrize(
    "change",
    [
        {"lost": 1},
        {"duplicated": 1},
        {"ghosts": 1},
        {"wrongly_dead": 1},
        {"problems": ("it was busy",)},
        {"recovery": 2.6},
    ],
)
def test_a_result_is_clean_only_without_any_defect(change: dict[str, Any]) -> None:
    """Unknown commits are none; every number is in the error."""
    assert CLEAN.clean
    CLEAN.check()
    unclean = replace(CLEAN, **change)
    assert not unclean.clean
    with pytest.raises(AssertionError) as caught:
        unclean.check()
    for name in Result.__slots__:
        assert f"{name}: {getattr(unclean, name)!r}" in str(caught.value)


def test_the_table_reads_well_as_text_and_as_markdown() -> None:
    """Every line is as long as the others, and a Markdown parser finds the cells."""
    text = table([CLEAN, replace(CLEAN, scenario="a|b", recovery=None), replace(CLEAN, lost=12345)])
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells == ["kills", "SQLite", "1,000", "20", "0", "0", "0", "0", "1.2 s (2.5 s)"]
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert html.count("<tr>") == 4
    assert html.count("<td") == 27
    assert "a|b" in html
