"""manage.py run_scheduler"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connections

from reliable_messaging.management.arguments import interval, lease, positive, show_log_lines
from reliable_messaging.workers import SchedulerOptions, run_scheduler_process

OPTIONS = ("database", "batch_size", "poll_max", "lease", "wakeup", "burst")


class Command(BaseCommand):
    help = (
        "Makes messages of timers and jobs that are due, until it is stopped. Start as many as you like. "
        "What is not given comes from the setting RELIABLE_MESSAGING, by the name in brackets."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--database", default="default", choices=list(connections), help="Database alias to serve.")
        add("--batch-size", type=positive, help="Most timers, or runs, in one transaction (default 200).")
        add("--poll-max", type=interval, help="Seconds between looks when nothing is due (POLL_MAX).")
        add("--lease", type=lease, help="Seconds after which a silent connection is given up (LEASE).")
        add(
            "--no-wakeup",
            action="store_false",
            dest="wakeup",
            default=None,
            help="Poll only; listen for no wake-ups, which only PostgreSQL has (WAKEUP).",
        )
        add("--burst", action="store_true", help="Stop when nothing is due.")

    def handle(self, **given: Any) -> None:
        show_log_lines(given["verbosity"])
        chosen = {name: given[name] for name in OPTIONS if given[name] is not None}
        run_scheduler_process(SchedulerOptions(**chosen))
