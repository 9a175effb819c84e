"""manage.py serve"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from example_project.shop.serve import serve


class Command(BaseCommand):
    help = "Runs the example for the browser: web server, worker, an admin user, messages of every kind."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *, port: int, **options: Any) -> None:
        serve(port, self._write)

    def _write(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
