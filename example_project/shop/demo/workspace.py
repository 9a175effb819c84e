"""A database and directory of its own for each run, so that no run disturbs another."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import connections


@contextmanager
def fresh_database(keep: Callable[[], bool]) -> Iterator[Path]:
    """Make a directory, point this process's database into it, migrate; remove it unless ``keep()``."""
    home = settings.DATA_DIR / "demo"
    home.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="run-", dir=home))
    connections["default"].close()
    connections.databases["default"]["NAME"] = directory / settings.DATABASE_FILE
    try:
        call_command("migrate", verbosity=0)
        yield directory
    finally:
        connections.close_all()
        if not keep():
            shutil.rmtree(directory, ignore_errors=True)


def worker_environment(directory: Path) -> dict[str, str]:
    """What makes a worker process use that database, with a lease short enough to wait for."""
    short = {"EXAMPLE_LEASE": "2", "EXAMPLE_BACKOFF": "0.3"}
    return {"EXAMPLE_DATA_DIR": os.fspath(directory), **short}
