"""The tutorial, followed to the letter."""

from __future__ import annotations

from pathlib import Path

from tests.docs.console import Console
from tests.docs.pages import TUTORIAL, blocks


def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    """Every command is typed in one shell, every file is written when its turn comes, and the output
    is what the page shows: from an empty directory to the message of a killed worker, finished."""
    tools, home = tmp_path / "tools", tmp_path / "home"
    tools.mkdir()
    home.mkdir()
    with Console(home, tools=tools) as console:
        for block in blocks(TUTORIAL):
            if block.language == "console":
                console.follow(block.text)
            else:
                assert block.language == "python", f"line {block.line}: {block.language}"
                write(home / "mysite" / block.title, block.text, append="append" in block.flags)


def write(path: Path, text: str, *, append: bool) -> None:
    """As the page says: added at the end of what is there, or the whole file."""
    assert path.parent.is_dir(), f"the page has not made {path.parent} yet"
    assert path.is_file() or not append
    with path.open("a" if append else "w") as file:
        file.write(text)
