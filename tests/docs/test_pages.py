"""Every code block of every page is run or checked; the follower that does it can fail."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.docs.conftest import Follow
from tests.docs.console import is_installation, steps
from tests.docs.pages import PAGES, ROOT, TUTORIAL, blocks, page_id

WITH_BLOCKS = [page for page in PAGES if page != TUTORIAL and blocks(page)]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=page_id)
def test_every_block_of_the_page_works(page: Path, follow: Follow) -> None:
    """Files are written and imported, Python is run with real commits, commands are typed, and what
    they print is what the page shows."""
    followed = follow(page)
    assert followed.returncode == 0, followed.stdout
    assert f"{len(blocks(page))} blocks followed" in followed.stdout


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_installation_commands_can_be_carried_out(page: Path) -> None:
    """The targets, the package and the extras that a page names are there."""
    for command in installation_commands(page):
        words = shlex.split(command)
        if words[0] == "make":
            assert words[1] in make_targets(), command
        elif words[:4] == ["python", "-m", "pip", "install"]:
            for requirement in words[4:]:
                name, extras = re.fullmatch(r"([\w-]+)(?:\[([\w,]+)\])?", requirement).groups()  # type: ignore[union-attr]
                assert name == "django-reliable-messaging", command
                assert set((extras or "").split(",")) - {""} <= offered_extras(), command


def installation_commands(page: Path) -> list[str]:
    found = [step for block in blocks(page) if block.language == "console" for step in steps(block.text)]
    return [step.command for step in found if is_installation(step.command)]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def offered_extras() -> set[str]:
    text = (ROOT / "pyproject.toml").read_text()
    section = text.split("[project.optional-dependencies]")[1].split("\n[")[0]
    return set(re.findall(r"^(\w+) =", section, re.MULTILINE))


PLAIN_SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": "x"}
WRONG = {
    "an unknown language": ("```yaml\na: 1\n```", "nobody knows how to run 'yaml'"),
    "no language": ("```\na\n```", "nobody knows how to run ''"),
    "an indented block": ("text\n\n    a = 1\n", "nobody knows how to run ''"),
    "Python that fails": ("```python\n1 / 0\n```", "ZeroDivisionError"),
    "another answer": ("```pycon\n>>> 1 + 1\n3\n```", "the page shows something else"),
    "a pycon block without a prompt": ("```pycon\n1\n```", "without >>>"),
    "a command that fails": ("```console\n$ false\n```", "failed with 1"),
    "another output": ("```console\n$ echo a\nb\n```", "the page shows:\nb"),
    "output in another order": ("```console\n$ printf 'a\\nb\\n'\nb\na\n```", "the page shows"),
    "output without a command": ("```console\necho\n```", "begins with a command"),
    "a failure that does not come": (
        "```console\n$ true\nTraceback (most recent call last):\n```",
        "was to fail, and did not",
    ),
    "an unknown setting": (
        '```python title="mysite/settings.py" append\nRELIABLE_MESSAGING = {"LEESE": 1}\n```',
        "'LEESE' is not a setting",
    ),
    "an unknown setting in a variant": (
        '```python title="mysite/settings.py" variant\nRELIABLE_MESSAGING = {"LEESE": 1}\n```',
        "'LEESE' is not a setting",
    ),
    "a variant that is warned of": (
        f'```python title="mysite/settings.py" variant\nDATABASES = {{"default": {PLAIN_SQLITE}}}\n```',
        "reliable_messaging.W001",
    ),
    "a file that cannot be imported": (
        '```python title="shop/services.py"\nimport nothing_like_it\n```',
        "nothing_like_it",
    ),
    "a handler that is refused": (
        '```python title="shop/handlers.py"\nfrom reliable_messaging import handler\n\nhandler("")\n```',
        "The topic is empty",
    ),
    "a file given twice": (
        '```python title="shop/a.py"\n```\n\n```python title="shop/a.py"\n```',
        "is given twice",
    ),
    "an unknown option of the worker": (
        "```ini\n[Service]\nExecStart=python manage.py run_outbox_worker --lane mail\n```",
        "unrecognized arguments: --lane",
    ),
    "a broken unit": ("```ini\nExecStart=x\n```", "MissingSectionHeaderError"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_block_is_found(case: str, tmp_path: Path, follow: Follow) -> None:
    """The follower fails, and its words lead to the mistake."""
    text, words = WRONG[case]
    page = tmp_path / "page.md"
    page.write_text(text + "\n")
    followed = follow(page)
    assert followed.returncode != 0
    assert words in followed.stdout
