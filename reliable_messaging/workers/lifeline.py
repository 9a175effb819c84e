"""A child's tie to its parent: standard input, which ends when the parent lets go of it, or dies.

A signal would not do. systemd signals every process of a service, and a terminal every process in
the foreground; passed on as well, it would reach the child twice, and the second means "at once".
"""

from __future__ import annotations

import os
import threading

from .stop import StopFlag

STANDARD_INPUT = 0


def stop_when_parent_lets_go(flag: StopFlag) -> None:
    def watch() -> None:
        try:
            while os.read(STANDARD_INPUT, 1024):
                pass
        except OSError:
            pass  # no standard input at all: the same as one that has ended
        flag.request()

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
