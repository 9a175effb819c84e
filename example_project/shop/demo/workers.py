from __future__ import annotations

from reliable_messaging.models import Worker

from .finding import Finding, compare
from .scene import Scene
from .waiting import wait_until

PROMISE = "Workers report that they are alive"
WORKERS = 2


class WorkerEnded(Exception):
    """A worker process ended when it should be running."""


def workers_start(scene: Scene) -> Finding:
    """Two ``manage.py run_outbox_worker`` processes come up and say so in the database."""
    started = [scene.workers.start("run_outbox_worker", "--concurrency", "2") for _ in range(WORKERS)]

    def are_alive() -> bool:
        codes = [worker.poll() for worker in started]
        if codes != [None] * WORKERS:
            raise WorkerEnded(f"exit codes {codes}")
        return Worker.objects.count() == WORKERS

    wait_until("every worker's heartbeat", are_alive)
    pids = sorted(worker.pid for worker in started)
    scene.say(f"manage.py run_outbox_worker runs as processes {' and '.join(map(str, pids))}")
    ours = sorted(Worker.objects.values_list("pid", flat=True)) == pids
    return compare(
        PROMISE,
        expected={"heartbeats": WORKERS, "from": "these processes"},
        seen={"heartbeats": Worker.objects.count(), "from": "these processes" if ours else "others"},
    )
