"""What the benchmark tells its processes, through their environment."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.services import DATABASE_NAME, mariadb, postgres, sqlite

DATABASE = "BENCH_DATABASE"
"""Which kind of database: postgres, sqlite, mariadb."""
OPTIONS = "BENCH_OPTIONS"
"""RELIABLE_MESSAGING of the process, as JSON."""


def with_options(**options: Any) -> dict[str, str]:
    """Environment of a process that is to have these settings."""
    return {OPTIONS: json.dumps(options)}


def asked_options() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.environ.get(OPTIONS, "{}"))
    return found


def reach(database: str) -> dict[str, Any] | str:
    """Django's settings for this kind of database, or a line that says why there is none."""
    finders = {"postgres": postgres, "sqlite": lambda: sqlite(DATABASE_NAME), "mariadb": mariadb}
    return finders[database]()
