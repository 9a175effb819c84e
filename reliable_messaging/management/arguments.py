"""What the options of the commands take, and where their log lines go."""

from __future__ import annotations

import logging
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.core.management.base import CommandError
from django.db import OperationalError, ProgrammingError

from reliable_messaging import tally
from reliable_messaging.conf import SHORTEST_LEASE
from reliable_messaging.exceptions import InvalidName
from reliable_messaging.names import check_queue
from reliable_messaging.terminal import terminal


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
    try:
        return tuple(check_queue(name) for name in found)
    except InvalidName as exc:
        raise ArgumentTypeError(str(exc)) from None


@contextmanager
def explaining_missing_tables() -> Iterator[None]:
    try:
        yield
    except (OperationalError, ProgrammingError) as exc:
        raise CommandError(f"{exc}\nDoes the database answer, and has manage.py migrate run?") from exc


def show_log_lines(verbosity: int) -> None:
    """On the terminal, unless the project has set up logging for us."""
    logger = logging.getLogger("reliable_messaging")
    if not logger.hasHandlers():
        logger.addHandler(terminal)
    if terminal in logger.handlers:
        tally.done.is_on = verbosity < 2
        logger.setLevel([logging.WARNING, logging.INFO, logging.DEBUG, logging.DEBUG][verbosity])
