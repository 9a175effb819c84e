from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers import WorkerProcess

Start = Callable[..., WorkerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start worker processes; none of them outlives the test, and a failing test shows their output."""
    workers: list[WorkerProcess] = []

    def start_worker(using: str, *arguments: str, **options: Any) -> WorkerProcess:
        worker = WorkerProcess(using, *arguments, log=tmp_path / "workers.log", **options)
        workers.append(worker)
        return worker

    yield start_worker
    for worker in workers:
        worker.close()
    if workers:
        print(workers[0].log.read_text()[-5000:])
