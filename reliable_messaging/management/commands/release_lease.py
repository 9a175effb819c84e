"""manage.py release_lease"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from reliable_messaging import leases


class Command(BaseCommand):
    help = (
        "Takes a lease away from its holder. The holder learns of it at its next renewal and works on until "
        "then: be sure that it is gone, or that what it writes is fenced by the token."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="As list_leases shows it.")
        parser.add_argument(
            "--database", default="default", choices=list(connections), help="Database alias to ask."
        )

    def handle(self, *, name: str, database: str, **_: Any) -> None:
        holder = leases.holder(name, using=database)
        if holder is None or not leases.take_away(name, using=database):
            raise CommandError(
                f"Nobody holds the lease {name!r}: manage.py list_leases shows which there are."
            )
        self.stdout.write(
            f"Released the lease {name!r}, which {holder.owner} held with token {holder.token}."
        )
