"""When each handler started, told by its process to the benchmark through a file.

``time.monotonic_ns`` counts from the machine's boot for every process alike, so a start in one
process can be compared with a commit in another.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

VARIABLE = "BENCH_STAMPS"
"""The environment variable that names the file."""


def stamp(number: str) -> None:
    """Write down that the handler of this message starts now."""
    line = f"{number} {time.monotonic_ns()}\n"
    os.write(_file(), line.encode())  # one write in append mode: lines of threads do not mix


def read_stamps(path: Path) -> dict[int, int]:
    """The first start of each message. Without the file's last, half-written line."""
    starts: dict[int, int] = {}
    text = path.read_text() if path.exists() else ""
    for line in text[: text.rfind("\n") + 1].splitlines():
        number, at = line.split()
        starts.setdefault(int(number), int(at))
    return starts


@cache
def _file() -> int:
    return os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
