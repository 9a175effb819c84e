"""A program that starts itself again."""

from __future__ import annotations

import os
import subprocess
import sys

REPLACED = """
import os, sys
import django

django.setup()
from reliable_messaging.workers import WorkerOptions, launch

os.dup2(1, 50, inheritable=True)
launch.program = lambda: [sys.executable, "-c", "import os; print(*os.listdir('/dev/fd'))"]
launch.leave(WorkerOptions())
"""


def test_a_replaced_process_hands_no_file_on() -> None:
    """A session that outlived its worker would keep the rows that it has locked from everybody. What
    is standard stays: a supervisor holds the other end of standard input."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "TEST_DATABASES": "sqlite"}
    ran = subprocess.run(
        [sys.executable, "-c", REPLACED], check=True, stdout=subprocess.PIPE, env=environment, timeout=60
    )
    left = set(ran.stdout.decode().split())
    assert "50" not in left
    assert {"0", "1", "2"} <= left
