"""manage.py demo"""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from example_project.shop.demo.run import run_demo


class Command(BaseCommand):
    help = "Puts the promises to the test, with real processes that are killed, on SQLite."

    def handle(self, **options: Any) -> None:
        sys.exit(run_demo(self._write))

    def _write(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
