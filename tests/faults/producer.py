"""A producer in a process of its own, which may be killed.

python -m tests.faults.producer ALIAS NUMBER …
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def start_producer(using: str, numbers: list[int], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """It writes each of these orders with its message, in one transaction after the other."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.producer", using, *map(str, numbers)],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", **environment},
    )


def main(using: str, *numbers: str) -> None:
    import django

    django.setup()
    from django.db import transaction

    from .oracle import write

    for number in map(int, numbers):
        with transaction.atomic(using=using):
            write(using, [number])


if __name__ == "__main__":
    main(*sys.argv[1:])
