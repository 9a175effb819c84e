"""manage.py run_outbox_worker"""

from __future__ import annotations

import logging
from argparse import SUPPRESS, ArgumentTypeError
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connections

from reliable_messaging import tally
from reliable_messaging.conf import SHORTEST_LEASE
from reliable_messaging.terminal import terminal
from reliable_messaging.workers import WorkerOptions, run_worker_process
from reliable_messaging.workers.launch import DURATIONS
from reliable_messaging.workers.presets import PRESETS
from reliable_messaging.workqueue import QueueSelection


def seconds(text: str) -> timedelta:
    try:
        value = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if value < timedelta(0):
        raise ArgumentTypeError(f"{text!r} is negative")
    return value


def interval(text: str) -> timedelta:
    value = seconds(text)
    if not value:
        raise ArgumentTypeError("0 would be a busy loop")
    return value


def lease(text: str) -> timedelta:
    value = seconds(text)
    if value < SHORTEST_LEASE:
        least = SHORTEST_LEASE.total_seconds()
        raise ArgumentTypeError(f"{text} s cannot be renewed in time; use {least:g} or more")
    return value


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def names(text: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise ArgumentTypeError("name at least one queue")
    return found


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

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--database", default="default", choices=list(connections), help="Database alias to serve.")
        add("--queues", type=names, help="Comma-separated. Default: every queue that has messages.")
        add("--exclude-queues", type=names, default=(), help="Comma-separated queues to leave alone.")
        add(
            "--preset",
            choices=list(PRESETS),
            help="Options for a kind of site: long queues, a small machine, or little that is urgent.",
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
            help="Poll only; listen for no wake-ups (WAKEUP).",
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
        _show_log_lines(given["verbosity"])
        if given["database_name"] is not None:  # a test's database is not the one in the settings
            connections[given["database"]].settings_dict["NAME"] = given["database_name"]
        chosen = dict(PRESETS.get(given["preset"], {}))
        chosen |= {name: given[name] for name in PASSED_ON if given[name] is not None}
        for name in DURATIONS:
            if isinstance(chosen.get(name), (int, float)):  # from call_command(), which does not parse
                chosen[name] = timedelta(seconds=chosen[name])
        selection = QueueSelection(only=given["queues"], exclude=given["exclude_queues"])
        run_worker_process(WorkerOptions(selection=selection, **chosen), processes=given["processes"])


def _show_log_lines(verbosity: int) -> None:
    """On the terminal, unless the project has set up logging for us."""
    logger = logging.getLogger("reliable_messaging")
    if not logger.hasHandlers():
        logger.addHandler(terminal)
    if terminal in logger.handlers:
        tally.done.is_on = verbosity < 2
        logger.setLevel([logging.WARNING, logging.INFO, logging.DEBUG, logging.DEBUG][verbosity])
