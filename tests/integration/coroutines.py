"""What the tests of async handlers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from reliable_messaging import enqueue
from reliable_messaging.models import OutboxMessage
from reliable_messaging.workers import OutboxWorker, WorkerOptions
from tests.testapp.models import Effect
from tests.workers import eventually, handling, run_worker

TOPIC = "test.async"


def rows(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def effects(using: str) -> list[str]:
    return sorted(Effect.objects.using(using).values_list("name", flat=True))


def loose(function: Callable[[Any], Any], topic: str = TOPIC, **options: Any) -> Any:
    return handling(topic, function, atomic=False, **options)


def run_one(using: str, function: Callable[[Any], Any], **options: Any) -> OutboxMessage:
    """One message through a worker; its row afterwards."""
    row = enqueue(TOPIC, using=using)
    with loose(function):
        run_worker(using, **options)
    return rows(using).get(pk=row.pk)  # type: ignore[no-any-return]


@contextmanager
def working(using: str, **options: Any) -> Iterator[OutboxWorker]:
    """A worker that has started and takes no turn by itself."""
    worker = OutboxWorker(
        WorkerOptions(database=using, **{"burst": True, "grace": timedelta(seconds=5), **options})
    )
    worker.start()
    try:
        yield worker
    finally:
        worker.shut_down()
        eventually(lambda: not worker._alive)
        worker.waiter.close()


def go_on(worker: OutboxWorker, until: Callable[[], bool]) -> None:
    eventually(lambda: worker.turn() >= 0 and until())
