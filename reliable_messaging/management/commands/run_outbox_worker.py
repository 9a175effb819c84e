"""manage.py run_outbox_worker"""

from __future__ import annotations

from argparse import SUPPRESS
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from reliable_messaging.management.arguments import (
    interval,
    lease,
    names,
    positive,
    seconds,
    show_log_lines,
)
from reliable_messaging.workers import WorkerOptions, run_worker_process
from reliable_messaging.workers.launch import DURATIONS
from reliable_messaging.workers.presets import PRESETS
from reliable_messaging.workqueue import QueueSelection

PASSED_ON = (
    "database",
    "concurrency",
    "async_concurrency",
    "batch_size",
    "chunk_size",
    "wakeup",
    "burst",
    "max_messages",
    "quarantine",
    "supervised",
    "orphan",
    "verbosity",
    *DURATIONS,
)


class Command(BaseCommand):
    help = (
        "Runs the handlers of outbox messages until it is stopped. What is not given comes from the "
        "setting RELIABLE_MESSAGING, by the name in brackets."
    )
    scheduler = False

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--database", default="default", choices=list(connections), help="Database alias to serve.")
        add("--queues", type=names, help="Comma-separated. Default: every queue that has messages.")
        add("--exclude-queues", type=names, default=(), help="Comma-separated queues to leave alone.")
        add(
            "--preset",
            choices=list(PRESETS),
            help="Options for a kind of site: long queues, a small machine, or little to do but urgent.",
        )
        add("--concurrency", type=positive, help="Handler threads (default 4).")
        add(
            "--async-concurrency",
            type=positive,
            help="Async handlers that run at once, on one event loop (default 100).",
        )
        add("--batch-size", type=positive, help="Most messages claimed at once (BATCH_SIZE).")
        add("--chunk-size", type=positive, help="Most atomic handlers in one transaction (CHUNK_SIZE).")
        add("--lease", type=lease, help="Seconds a claim lasts unless renewed (LEASE).")
        add("--poll-min", type=interval, help="Seconds between looks while there is work (POLL_MIN).")
        add("--poll-max", type=interval, help="Seconds between looks when idle (POLL_MAX).")
        add(
            "--no-wakeup",
            action="store_false",
            dest="wakeup",
            default=None,
            help="Poll only; listen for no wake-ups, which only PostgreSQL has (WAKEUP).",
        )
        add("--grace", type=seconds, help="Seconds to finish what runs after SIGTERM (default 30).")
        add("--burst", action="store_true", help="Stop when nothing is due.")
        add("--max-messages", type=positive, help="Stop after that many messages.")
        add(
            "--processes",
            type=positive,
            help="Run that many workers, and start again what died (default: one, in this process).",
        )
        # How a worker starts others; not for people.
        add("--database-name", help=SUPPRESS)
        add("--quarantine", action="store_true", help=SUPPRESS)
        add("--supervised", action="store_true", help=SUPPRESS)
        add("--orphan", type=positive, help=SUPPRESS)

    def handle(self, **given: Any) -> None:
        show_log_lines(given["verbosity"])
        if given["database_name"] is not None:  # a test's database is not the one in the settings
            connections[given["database"]].settings_dict["NAME"] = given["database_name"]
        chosen = dict(PRESETS.get(given["preset"], {}))
        chosen |= {name: given[name] for name in PASSED_ON if given[name] is not None}
        for name in DURATIONS:
            if isinstance(chosen.get(name), (int, float)):  # from call_command(), which does not parse
                chosen[name] = timedelta(seconds=chosen[name])
        selection = QueueSelection(only=given["queues"], exclude=given["exclude_queues"])
        options = WorkerOptions(selection=selection, scheduler=self.scheduler, **chosen)
        if problem := contradiction(options):
            raise CommandError(problem)
        run_worker_process(options, processes=given["processes"])


def contradiction(options: WorkerOptions) -> str | None:
    """What would make a worker that does nothing, or not what was asked for."""
    selection = options.selection
    if selection.only is not None and set(selection.only) <= set(selection.exclude):
        return "Every queue of --queues is also in --exclude-queues: there is nothing left to serve."
    if options.poll_min > options.poll_max:
        shortest, longest = options.poll_min.total_seconds(), options.poll_max.total_seconds()
        return f"--poll-min is {shortest:g} s and --poll-max {longest:g} s: lower one."
    return None
