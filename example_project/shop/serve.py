"""The example for the browser: a web server, and a worker with its scheduler; they end together."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from django.core.management import call_command
from django.core.management.base import CommandError

from .processes import Children, leaving_on_signals
from .seed import make_admin, seed

HOST = "127.0.0.1"
LOOK_EVERY_SECONDS = 0.2


def serve(port: int, write: Callable[[str], object]) -> None:
    """Run until Ctrl-C or SIGTERM, or until one of the two processes ends by itself."""
    _require_free(port)
    call_command("migrate", verbosity=0)
    make_admin()
    seed()
    with leaving_on_signals(exit_code=0), Children() as children:
        worker = children.start("run_worker")
        server = children.start("runserver", "--noreload", f"{HOST}:{port}")
        told = False
        while worker.poll() is None and server.poll() is None:
            if not told and _answers(port):
                write(f"\nThe shop: http://{HOST}:{port}/  login: admin  password: admin  stop: Ctrl-C\n\n")
                told = True
            time.sleep(LOOK_EVERY_SECONDS)
        ended = "worker" if worker.poll() is not None else "web server"
        raise CommandError(f"The {ended} ended by itself; the lines above say why.")


def _answers(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as exc:
            raise CommandError(
                f"Port {port} cannot be used ({exc}). Try: make serve PORT={port + 1}"
            ) from exc
