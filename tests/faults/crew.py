"""The worker processes of a scenario."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.workers import WorkerProcess

from .processes import descendants, kill
from .result import Result

SHOWN = 6000
SHOWN_LINES = 20
WORST = re.compile(" (ERROR|CRITICAL) ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    using: str
    log: Path
    workers: list[WorkerProcess] = field(default_factory=list)

    def start(self, *arguments: str, environment: dict[str, str] | None = None) -> WorkerProcess:
        worker = WorkerProcess(self.using, *arguments, log=self.log, environment=environment)
        self.workers.append(worker)
        return worker

    def judged(self, result: Result) -> Result:
        """The same; an unclean one is told with what the workers have said."""
        if not result.clean:
            self.show_log()
        return result

    def show_log(self) -> None:
        """What was worst, and what came last."""
        said = self.log.read_text() if self.log.exists() else ""
        worst = [line for line in said.splitlines() if WORST.search(line)]
        print(*worst[-SHOWN_LINES:], "…", said[-SHOWN:], sep="\n", flush=True)

    def close(self) -> None:
        for worker in self.workers:
            children = descendants(worker.process.pid)
            worker.close()  # first: a supervisor would start them again
            kill(children)


@contextmanager
def crew_for(using: str) -> Iterator[Crew]:
    """None of them outlives the block, nor do their children. Their last words are shown when it fails."""
    with TemporaryDirectory(prefix="rm_crew_") as directory:
        crew = Crew(using=using, log=Path(directory) / "workers.log")
        try:
            yield crew
        except BaseException:
            crew.show_log()
            raise
        finally:
            crew.close()
