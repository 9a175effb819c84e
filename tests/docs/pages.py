"""The pages, taken apart: code blocks, tables, links, headings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
TUTORIAL = DOCS / "tutorial" / "first-message.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced code block: ```` ```python title="shop/handlers.py" append ````"""

    language: str
    text: str
    line: int
    """Of the fence, counted from 1."""
    title: str = ""
    """The file of the reader's project that it belongs to."""
    flags: frozenset[str] = field(default=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    heading: str
    columns: list[str]
    rows: list[list[str]]

    def column(self, name: str) -> list[str]:
        return [row[self.columns.index(name)] for row in self.rows]


def tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text())


def blocks(page: Path) -> list[Block]:
    return [_block(token) for token in tokens(page) if token.type in ("fence", "code_block") and token.map]


def _block(token: Token) -> Block:
    assert token.map is not None
    language, *options = shlex.split(token.info) or [""]
    titles = [option.removeprefix("title=") for option in options if option.startswith("title=")]
    return Block(
        # An indented block has no language, and so is never a known one.
        language=language if token.type == "fence" else "",
        text=token.content,
        line=token.map[0] + 1,
        title=titles[0] if titles else "",
        flags=frozenset(option for option in options if not option.startswith("title=")),
    )


def tables(page: Path) -> list[Table]:
    found: list[Table] = []
    heading = ""
    rows: list[list[str]] = []
    stream = iter(tokens(page))
    for token in stream:
        if token.type == "heading_open":
            heading = next(stream).content
        elif token.type == "table_open":
            rows = []
        elif token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            rows[-1].append(next(stream).content.strip())
        elif token.type == "table_close":
            found.append(Table(heading=heading, columns=rows[0], rows=rows[1:]))
    return found


def table(page: Path, first_column: str) -> Table:
    """The one table of the page whose first column has that heading."""
    (found,) = [t for t in tables(page) if t.columns[0] == first_column]
    return found


def plain(cell: str) -> str:
    """`` `LEASE` `` → ``LEASE``"""
    return cell.strip().strip("`")


def links(page: Path) -> Iterator[str]:
    for token in tokens(page):
        for child in token.children or []:
            target = child.attrs.get("href") or child.attrs.get("src")
            if target:
                yield str(target)


@cache
def anchors(page: Path) -> frozenset[str]:
    """What ``#…`` may point to, as GitHub names headings."""
    stream = iter(tokens(page))
    return frozenset(_slug(next(stream).content) for token in stream if token.type == "heading_open")


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
