"""Starting this program again: as a child beside this process, or in its place."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

from django.conf import settings

from ..exceptions import ReliableMessagingError
from .options import WorkerOptions

COMMAND = "run_outbox_worker"
DURATIONS = ("lease", "poll_min", "poll_max", "grace")
SWITCHES = ("burst", "quarantine", "supervised")
STANDARD_ERROR = 2
TRY_AGAIN = 75
"""EX_TEMPFAIL: the exit code that asks a supervisor for another process."""


def start_child(options: WorkerOptions) -> subprocess.Popen[bytes]:
    """A worker that ends when this process closes its standard input, or dies."""
    arguments = [*program(), COMMAND, *as_arguments(replace(options, supervised=True))]
    return subprocess.Popen(arguments, env=environment(), stdin=subprocess.PIPE)  # noqa: S603


def leave(options: WorkerOptions) -> NoReturn:
    """End now, whatever the threads do, so that a fresh process takes over: the supervisor's next
    child, or this program again, under the same process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    if options.supervised or not can_start_again():
        os._exit(TRY_AGAIN)
    arguments = [*program(), COMMAND, *as_arguments(options)]
    keep_files_from_successor()
    os.execve(arguments[0], arguments, environment())  # noqa: S606


def keep_files_from_successor() -> None:
    """MariaDB's client would hand its sockets on: the server would go on with the sessions of a worker
    that is no more, and nobody could claim the rows that they have locked."""
    for name in os.listdir("/dev/fd"):
        try:
            if int(name) > STANDARD_ERROR:
                os.set_inheritable(int(name), False)
        except OSError:
            pass  # closed since, as is the one that listed them


def can_start_again() -> bool:
    return bool(settings.SETTINGS_MODULE)


def require_settings_module() -> None:
    if not can_start_again():
        raise ReliableMessagingError(
            "Worker processes can only be started with settings in a module (DJANGO_SETTINGS_MODULE), not "
            "with settings.configure(): a new process could not find them."
        )


def program() -> list[str]:
    """As this process was started, up to the command's name, with the interpreter's options."""
    if COMMAND in sys.orig_argv:
        return [sys.executable, *sys.orig_argv[1 : sys.orig_argv.index(COMMAND)]]
    return [sys.executable, "-m", "django"]


def environment() -> dict[str, str]:
    given = {**os.environ, "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE or ""}
    if COMMAND in sys.orig_argv:
        return given
    # Called from another program, which knows where the project is; manage.py would know by itself.
    return {**given, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def as_arguments(options: WorkerOptions) -> list[str]:
    """The command line that makes the same options again."""
    arguments = [f"--database={options.database}", f"--verbosity={options.verbosity}", "--skip-checks"]
    if options.selection.only is not None:
        arguments.append(f"--queues={','.join(options.selection.only)}")
    if options.selection.exclude:
        arguments.append(f"--exclude-queues={','.join(options.selection.exclude)}")
    for name in ("concurrency", "batch_size", "chunk_size", "max_messages", *DURATIONS, *SWITCHES):
        arguments += _as_argument(f"--{name.replace('_', '-')}", getattr(options, name))
    return arguments


def _as_argument(name: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [name]
    return [f"{name}={value.total_seconds() if isinstance(value, timedelta) else value}"]
