"""Forking, as a handler should not: the child comes back."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable


def fork_and_return(child: Callable[[], None], *, code: int = 0) -> bool:
    """Whether this is the parent. The child comes back too, or leaves with an exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside other threads
        pid = os.fork()
    if not pid:
        child()
        return False
    found = _exit_code(pid)
    assert found == code, f"the child went on, and ended with {found}"
    return True


def _exit_code(pid: int) -> int:
    """Bounded: a child that inherited another thread's lock may never end."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
