"""manage.py sync_jobs"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connections

from reliable_messaging import jobs
from reliable_messaging.management.arguments import explaining_missing_tables


class Command(BaseCommand):
    help = (
        "Creates and updates the jobs that the code declares with @periodic. What somebody has changed by "
        "hand since stays as it is, and so does what the code has no longer."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--database", default="default", choices=list(connections), help="Database alias to change.")
        add(
            "--prune",
            action="store_true",
            help="Disable jobs that the code has no longer. For the end of a deploy: two versions of it "
            "would disable each other's.",
        )
        add("--overwrite", action="store_true", help="Undo what somebody has changed by hand.")

    def handle(self, *, database: str, prune: bool, overwrite: bool, **_: Any) -> None:
        with explaining_missing_tables():
            synced = jobs.sync(prune=prune, overwrite=overwrite, using=database)
        for line in list(_lines(synced)) or ["Nothing to do."]:
            self.stdout.write(line)


def _lines(synced: jobs.Synced) -> Iterator[str]:
    for name in synced.created:
        yield f"Created the job {name!r}."
    for name in synced.updated:
        yield f"Updated the job {name!r}."
    for name, columns in synced.kept.items():
        yield f"Kept the job {name!r} as somebody has changed it: {', '.join(columns)}."
    for name in synced.pruned:
        yield f"Disabled the job {name!r}, which the code has no longer."
