from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from .scene import Scene
from .waiting import wait_until


@contextmanager
def schedulers(scene: Scene, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """As many ``manage.py run_scheduler`` processes, all of them at work; leaving the block stops them."""
    started = [scene.workers.start("run_scheduler") for _ in range(count)]
    try:
        # Their logs tell: they have no heartbeat, since they hold nothing that could be left behind.
        logs = [scene.workers.log_of(process) for process in started]
        wait_until(
            "every scheduler at work", lambda: all("scheduler started" in log.read_text() for log in logs)
        )
        yield started
    finally:
        for process in started:
            process.terminate()
