"""manage.py list_leases"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connections

from reliable_messaging import leases
from reliable_messaging.columns import in_columns
from reliable_messaging.management.arguments import explaining_missing_tables


class Command(BaseCommand):
    help = "Shows every named lease: its holder, its last token, and how long it has it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--database", default="default", choices=list(connections), help="Database alias to ask."
        )

    def handle(self, **given: Any) -> None:
        with explaining_missing_tables():
            known = leases.known(using=given["database"])
        rows = [
            (found.name, str(found.token), found.owner if found.ends_in else "", _state(found))
            for found in known
        ]
        if not rows:
            self.stderr.write("No lease was ever taken.")
            return
        for line in in_columns(("NAME", "TOKEN", "OWNER", "STATE"), rows):
            self.stdout.write(line)


def _state(found: leases.LeaseAnswer) -> str:
    if found.ends_in:
        return f"held, ends in {found.ends_in.total_seconds():.0f} s unless renewed"
    if found.expires_at is None:
        return "free, released"
    return f"free, ended {(found.server_time - found.expires_at).total_seconds():.0f} s ago unreleased"
