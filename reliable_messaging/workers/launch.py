"""Starting this program again: as a child beside this process, or in its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from argparse import ArgumentParser
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from django.conf import settings
from django.db import connections

from ..logs import logger
from .options import WorkerOptions

COMMAND = "run_outbox_worker"
WITH_SCHEDULER = "run_worker"
NUMBERS = ("concurrency", "async_concurrency", "batch_size", "chunk_size", "max_messages", "orphan")
DURATIONS = ("lease", "poll_min", "poll_max", "grace")
SWITCHES = ("burst", "quarantine", "supervised")
STANDARD_ERROR = 2
TRY_AGAIN = 75
"""EX_TEMPFAIL: the exit code that asks a supervisor for another process."""
LAST_WORDS_SECONDS = 5.0


def _current_directory() -> str | None:
    with suppress(OSError):  # it may have been deleted
        return str(Path.cwd())
    return None


DIRECTORY = _current_directory()
"""At the start: a handler may change it, and manage.py may have been named relative to it."""


def start_child(options: WorkerOptions) -> subprocess.Popen[bytes]:
    """A worker that ends when this process closes its standard input, or dies."""
    arguments = command_line(replace(options, supervised=True))
    return subprocess.Popen(arguments, env=environment(), cwd=DIRECTORY, stdin=subprocess.PIPE)  # noqa: S603


def leave(options: WorkerOptions) -> NoReturn:
    """End now, whatever the threads do, so that a fresh process takes over: the supervisor's next
    child, or this program again, under the same process id."""
    try:
        if is_own_process() and not options.supervised:
            _become(options)
    except BaseException:  # the interpreter is gone, or there is no memory: to stay would be worse
        logger.exception("A worker could not start itself again; it ends.")
    finally:
        end(TRY_AGAIN)


def end(code: int) -> NoReturn:
    """Whatever the threads do."""
    _flush()
    os._exit(code)


def end_soon(code: int) -> None:
    """Should what follows hang: a log handler may, when nobody reads what it writes."""
    timer = threading.Timer(LAST_WORDS_SECONDS, os._exit, [code])
    timer.daemon = True
    timer.start()


def _become(options: WorkerOptions) -> NoReturn:
    arguments = command_line(options)
    _flush()
    keep_files_from_successor()
    if DIRECTORY is not None:
        with suppress(OSError):  # a deployment may have taken it away
            os.chdir(DIRECTORY)
    signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm would outlive the exec, and end the successor
    os.execve(arguments[0], arguments, environment())  # noqa: S606


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # there may be none, or nobody who reads it
            stream.flush()


def keep_files_from_successor() -> None:
    """MariaDB's client would hand its sockets on: the server would go on with the sessions of a worker
    that is no more, and nobody could claim the rows that they have locked."""
    for path in list(Path("/dev/fd").iterdir()):
        try:
            if int(path.name) > STANDARD_ERROR:
                os.set_inheritable(int(path.name), False)
        except OSError:
            pass  # closed since, as is the one that listed them


def is_own_process() -> bool:
    """Whether this process is the command; with call_command() it is somebody else's, such as a test's."""
    return _place_of_command() is not None


def can_start_child(alias: str) -> bool:
    """A new process finds the settings in their module, and the database outside of this process."""
    connection: Any = connections[alias]
    in_memory = connection.vendor == "sqlite" and connection.is_in_memory_db()
    return bool(settings.SETTINGS_MODULE) and not in_memory


def program() -> list[str]:
    """As this process was started, up to the command's name, with the interpreter's options."""
    place = _place_of_command()
    return [sys.executable, "-m", "django"] if place is None else [sys.executable, *sys.orig_argv[1:place]]


def _place_of_command() -> int | None:
    """Among the words that this process was started with."""
    return next((n for n, word in enumerate(sys.orig_argv) if word in (COMMAND, WITH_SCHEDULER)), None)


def command_line(options: WorkerOptions) -> list[str]:
    """This program again, with these options. A quarantine has no scheduler: what it runs may kill it."""
    command = WITH_SCHEDULER if options.scheduler and not options.quarantine else COMMAND
    return [*program(), command, *as_arguments(options)]


def environment() -> dict[str, str]:
    given = {**os.environ, "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE or ""}
    if is_own_process():
        # manage.py knows where the project is. A PYTHONPATH would reach the programs that handlers start,
        # which may be those of another Python.
        return given
    return {**given, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def as_arguments(options: WorkerOptions) -> list[str]:
    """The command's options that make the same ones again."""
    name = connections[options.database].settings_dict["NAME"]
    arguments = [f"--database={options.database}", f"--database-name={name}", "--skip-checks"]
    arguments += _pythonpath()
    arguments.append(f"--verbosity={options.verbosity}")
    if options.selection.only is not None:
        arguments.append(f"--queues={','.join(options.selection.only)}")
    if options.selection.exclude:
        arguments.append(f"--exclude-queues={','.join(options.selection.exclude)}")
    if not options.wakeup:
        arguments.append("--no-wakeup")
    for name in (*NUMBERS, *DURATIONS, *SWITCHES):
        arguments += _as_argument(f"--{name.replace('_', '-')}", getattr(options, name))
    return arguments


def _pythonpath() -> list[str]:
    """Django's own option, which it does not keep."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--pythonpath")
    found = parser.parse_known_args(sys.orig_argv)[0].pythonpath if is_own_process() else None
    return [] if found is None else [f"--pythonpath={found}"]


def _as_argument(name: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [name]
    return [f"{name}={value.total_seconds() if isinstance(value, timedelta) else value}"]
