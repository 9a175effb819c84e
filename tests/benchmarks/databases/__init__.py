"""The databases that can be measured: one object for each kind answers what differs."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module

from tests.benchmarks.environment import DATABASE

from .base import ALIASES, FILLED, Database

NAMES = ("postgres", "sqlite", "mariadb")

__all__ = ["ALIASES", "FILLED", "NAMES", "Database", "current"]


@cache
def current() -> Database:
    """The one that this process measures. Its driver is imported only now."""
    name = os.environ.get(DATABASE, NAMES[0])
    database: Database = import_module(f"{__package__}.{name}").DATABASE
    return database
