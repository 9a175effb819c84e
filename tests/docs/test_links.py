"""Links lead somewhere, and every page can be reached."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, anchors, links, page_id


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=page_id)
def test_every_link_of_the_page_resolves(page: Path) -> None:
    """Relative ones to a file and a heading that exist, inside the project; others are https."""
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    """A missing file, a missing heading, a missing image and plain http are each reported."""
    page = tmp_path / "page.md"
    wrong = ["none.md", "#nowhere", "page.md#nowhere", "none.png", "http://example.com", "/page.md"]
    right = ["page.md", "#a-heading", "page.md#a-heading", "https://example.com"]
    text = "".join(f"[x]({target})\n" for target in [*wrong, *right]).replace("[x](none.png", "![x](none.png")
    page.write_text(f"# A heading\n\n{text}")
    assert broken_links(page, root=tmp_path) == wrong


def test_every_page_is_in_the_index() -> None:
    """docs/index.md links every page of the documentation."""
    index = DOCS / "index.md"
    listed = {(index.parent / target).resolve() for target in links(index)}
    assert {page for page in PAGES if DOCS in page.parents} - {index} == listed


def broken_links(page: Path, *, root: Path = ROOT) -> list[str]:
    return [target for target in links(page) if not resolves(page, target, root)]


def resolves(page: Path, target: str, root: Path) -> bool:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return parts.scheme == "https"
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if parts.path.startswith("/") or not path.exists() or root not in (path, *path.parents):
        return False
    return not parts.fragment or parts.fragment in anchors(path)
