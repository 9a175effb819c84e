"""Workers on a wire that is going to fail, and what they cost meanwhile."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from django.db import connections

from reliable_messaging.wakeup import can_wake
from tests.workers import WorkerProcess

from .oracle import Oracle
from .proxy import Proxy
from .result import Result
from .server_sessions import other_sessions

LEASE, POLL_MAX = 1.0, 0.2
LONGEST_PAUSE = 5.0
"""Between two tries of a worker whose database is away."""
NEW_PROCESS = 5.0
"""Until a process that replaced itself is at work, on a machine that is busy with other things too."""
ALLOWED = LEASE + POLL_MAX + LONGEST_PAUSE + NEW_PROCESS
THREADS = 4
OPTIONS = {
    "--lease": LEASE,
    "--poll-max": POLL_MAX,
    "--batch-size": 10,
    "--chunk-size": 5,
    "--concurrency": THREADS,
}
SESSIONS = THREADS + 2
"""Of one worker: its threads, the claiming one, the heartbeat. On PostgreSQL there is a listener too."""
CORE_SHARE = 0.2
TRIES_PER_SECOND = 20
WORDS_OF_A_REPLACED = "this process ends"


class Workers:
    def __init__(self, using: str, start: Callable[[], WorkerProcess], *, count: int, log: Path) -> None:
        self.using = using
        self.start_cost = 0.0
        self._log = log
        self._start = start
        self.processes = [start() for _ in range(count)]

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def replaced(self) -> int:
        """How many processes have replaced themselves."""
        return self.log.count(WORDS_OF_A_REPLACED)

    def kill_one(self, dice: random.Random) -> None:
        """Another one takes its place."""
        place = dice.randrange(len(self.processes))
        self.processes[place].kill()
        self.processes[place] = self._start()

    def cpu(self) -> float:
        """Seconds of processor time so far, of all of them."""
        return sum(_cpu_seconds(worker.process.pid) for worker in self.processes)

    def warm_up(self, oracle: Oracle) -> None:
        """Until the first messages are done: then the cost so far is that of starting."""
        oracle.produce(20 * len(self.processes))
        oracle.wait(60)
        self.start_cost = self.cpu() / len(self.processes)

    def left_sessions(self, seconds: float = 15) -> list[str]:
        """A problem when, all work being done, there are more than the workers need: in each there may
        be locks. A quarantine ends by itself."""
        most = (SESSIONS + can_wake(connections[self.using])) * len(self.processes)
        deadline = time.monotonic() + seconds
        while (count := len(other_sessions(self.using))) > most:
            if time.monotonic() > deadline:
                return [f"{count} sessions are open, at most {most} are needed"]
            time.sleep(0.1)
        return []

    def checked(self, result: Result) -> Result:
        """Show what the workers said when something is not as it should be."""
        if not result.clean:
            print(self.log[-5000:])
        return result


@contextmanager
def working(
    using: str, *, count: int = 1, environment: Mapping[str, str], options: Mapping[str, object] = OPTIONS
) -> Iterator[Workers]:
    """Crashes are not counted against anybody: leases end here because the database is away."""
    arguments = [f"{name}={value}" for name, value in options.items()]
    blameless = {**environment, "TEST_MAX_CRASHES": "10000"}
    with TemporaryDirectory(prefix="rm_wired_") as directory, ExitStack() as stack:
        log = Path(directory) / "workers.log"

        def start() -> WorkerProcess:
            worker = WorkerProcess(using, *arguments, log=log, environment=blameless)
            stack.callback(worker.close)
            return worker

        workers = Workers(using, start, count=count, log=log)
        try:
            yield workers
        except BaseException:
            print(workers.log[-5000:])
            raise


class Outage:
    """From now on the database is away: what the workers do about it must not be a busy loop."""

    def __init__(self, workers: Workers, proxy: Proxy | None = None) -> None:
        self._workers = workers
        self._proxy = proxy
        self._began = time.monotonic()
        self._before = self._counters()

    def problems(self) -> list[str]:
        """What was too much until now. A process that replaced itself had to start again: that much
        is allowed on top."""
        seconds = time.monotonic() - self._began
        cpu, tries, replaced = (now - then for now, then in zip(self._counters(), self._before, strict=True))
        processes = len(self._workers.processes)
        allowed = CORE_SHARE * seconds * processes + 1.5 * self._workers.start_cost * replaced
        found = []
        if cpu > allowed:
            found.append(f"{cpu:.2f} s of CPU in an outage of {seconds:.1f} s, {allowed:.2f} s allowed")
        if tries / seconds > TRIES_PER_SECOND * processes:
            found.append(f"{tries / seconds:.0f} connections tried per second")
        return found

    def _counters(self) -> tuple[float, float, float]:
        tries = self._proxy.connections if self._proxy else 0
        return self._workers.cpu(), tries, self._workers.replaced


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
