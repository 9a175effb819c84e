"""What the system knows of a process, and of those that it has started."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from django.db import connections

from reliable_messaging.wakeup import can_wake

PROC = Path("/proc")


def children(pid: int) -> list[int]:
    """Those that run: one that has ended and waits to be noticed does not."""
    return [child for child, parent in _parents().items() if parent == pid]


def descendants(pid: int) -> list[int]:
    """Its children, and theirs."""
    parents = _parents()
    found = [pid]
    for parent in found:
        found += [child for child, its_parent in parents.items() if its_parent == parent]
    return found[1:]


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def resident_bytes(pid: int) -> int:
    return _status(pid, "VmRSS") * 1024


def thread_count(pid: int) -> int:
    return _status(pid, "Threads")


def address_space(pid: int) -> int:
    """Bytes of it in use."""
    return _status(pid, "VmSize") * 1024


def sockets(pid: int) -> set[str]:
    """One name for each that it holds open."""
    found = set()
    for entry in (PROC / str(pid) / "fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found.add(str(entry.readlink()))
    return {name for name in found if name.startswith("socket:")}


def _status(pid: int, name: str) -> int:
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


def _parents() -> dict[int, int]:
    found = {}
    for path in PROC.iterdir():
        with suppress(OSError, ValueError):  # it has ended meanwhile, or is no process
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(path.name)] = int(parent)
    return found


def listener_sockets(using: str) -> int:
    """Of a worker that listens for wake-ups: a connection, and the pair that ends its wait."""
    return 3 if can_wake(connections[using]) else 0
