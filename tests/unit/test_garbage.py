"""The search for garbage in a worker's process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from reliable_messaging.workers import garbage
from reliable_messaging.workers.garbage import BETWEEN_SEARCHES

ASK = """
import gc
from runpy import run_path
search_seldom = run_path({path!r})["search_seldom"]
gc.set_threshold({before}, 11, 12)
search_seldom()
print(*gc.get_threshold(), gc.get_freeze_count() > 1000)
"""


@pytest.mark.parametrize(
    ("before", "after"), [(700, BETWEEN_SEARCHES), (BETWEEN_SEARCHES * 2, BETWEEN_SEARCHES * 2), (0, 0)]
)
def test_it_is_made_seldom(before: int, after: int) -> None:
    """And never more often than the project has it; what was imported is not looked through again."""
    said = subprocess.run(
        [sys.executable, "-c", ASK.format(before=before, path=garbage.__file__)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == [str(after), "11", "12", "True"]
