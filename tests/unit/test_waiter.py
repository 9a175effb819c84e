"""The sleep that can be woken."""

from __future__ import annotations

import fcntl
import resource
import socket
import time
from collections.abc import Iterator

import pytest

from reliable_messaging.waiter import Waiter

BEYOND_SELECT = 1500


@pytest.fixture
def many_files() -> Iterator[None]:
    """As in a process with more than a thousand open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * BEYOND_SELECT
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip("this system allows no process so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_it_works_in_a_process_with_many_files(many_files: None) -> None:
    """``select`` knows no number beyond 1023, and a web server may have more connections than that."""
    waiter = Waiter()
    number = fcntl.fcntl(waiter._read.fileno(), fcntl.F_DUPFD, BEYOND_SELECT)
    waiter._read.close()
    waiter._read = socket.socket(fileno=number)
    waiter._read.setblocking(False)
    waiter.wake()
    began = time.monotonic()
    waiter.wait(60)
    assert time.monotonic() - began < 30
    waiter.wait(0.01)
    waiter.close()
