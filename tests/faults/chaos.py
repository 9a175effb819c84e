"""What ``make chaos`` runs: the long versions of the scenarios, on every database."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from django.db import connections

from tests.tables import wipe

from .result import Result

EVERYWHERE = ("default", "postgres", "mariadb")


class Entry(NamedTuple):
    """``function(using=…, seed=…, **arguments)`` returns its result, or a list of them."""

    name: str
    function: Callable[..., Result | list[Result]]
    arguments: Mapping[str, Any] = {}
    databases: tuple[str, ...] = EVERYWHERE
    family: str = ""


FAMILIES = (
    "kills",
    "zombies",
    "poison",
    "hung",
    "bad_handlers",
    "connections",
    "server_limits",
    "clock",
    "leases",
    "jobs",
    "stops",
    "soak",
)
"""Each has a file of its own, which ends in its entries."""


def entries() -> list[Entry]:
    return [
        entry._replace(family=family)
        for family in FAMILIES
        for entry in import_module(f"tests.faults.scenario_{family}").ENTRIES
    ]


def run(entries: Iterable[Entry], *, databases: Iterable[str], seed: int) -> Iterator[Result]:
    """The results as they come. One that raises becomes a row, and the run goes on."""
    for entry in entries:
        for using in databases:
            if using in entry.databases:
                yield from _run_one(entry, using, seed)


def _run_one(entry: Entry, using: str, seed: int) -> list[Result]:
    try:
        wipe(using)
        found = entry.function(using=using, seed=seed, **entry.arguments)
    except Exception as exc:
        traceback.print_exc()
        problem = f"{type(exc).__name__}: {exc}"
        return [Result(scenario=entry.name, database=_name(using), problems=(problem,))]
    finally:
        connections.close_all()
    return [found] if isinstance(found, Result) else found


def _name(using: str) -> str:
    try:
        return connections[using].display_name
    except Exception:  # MariaDB has to be asked for its name, and may be what is broken
        return using
