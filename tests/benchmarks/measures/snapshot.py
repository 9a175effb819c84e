"""Snapshot: the drain, while another session holds an old snapshot, as every dump and report does.

Until it lets go, nothing that is dead can be taken out of the indexes: a claim that begins at the
start of its index walks over everything that was drained before it. The rate of the last seconds
is divided by that of the first. With done rows kept and with done rows deleted; beside them the
plain loop, which has no remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from django.db import connection, models

from reliable_messaging.conf import get_settings
from reliable_messaging.models import OutboxMessage
from tests.benchmarks.backlog import refill
from tests.benchmarks.benchapp.handlers import NOOP
from tests.benchmarks.benchapp.models import PlainItem
from tests.benchmarks.environment import with_options
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.milestones import first_and_last_rate, watch
from tests.benchmarks.observer import watch_drain
from tests.benchmarks.processes import Process, plain_loop, worker
from tests.benchmarks.scale import Scale

START_SECONDS = 60.0
ENOUGH = 1.3
"""Times what would be drained at the rate of a short drain: the backlog must not run out."""
KEPT, DELETED = Target(must=0.6, aim=0.9), Target(must=0.8, aim=0.9)

Start = Callable[[], AbstractContextManager[Process]]


def measure(scale: Scale) -> Iterator[Figure]:
    deleting = with_options(OUTBOX_RETENTION=0)
    plain = partial(plain_loop, "drain", "--batch", str(get_settings().BATCH_SIZE), "--seconds", "600")
    yield _figure(scale, "done rows kept", OutboxMessage, worker, KEPT)
    yield _figure(scale, "done rows deleted", OutboxMessage, partial(worker, environment=deleting), DELETED)
    yield _figure(scale, "plain loop", PlainItem, plain, None)


def _figure(
    scale: Scale, words: str, model: type[models.Model], start: Start, target: Target | None
) -> Figure:
    lot = refill(model, NOOP, int(ENOUGH * _usual_rate(scale, model, start) * scale.snapshot_seconds))
    with held_snapshot(), start() as process:
        samples = watch(process, lot, seconds=scale.snapshot_seconds, patience=START_SECONDS)
    first, last = first_and_last_rate(samples, scale.snapshot_window)
    seconds = samples[-1].at - samples[0].at
    return Figure(
        measure=f"drain under a snapshot of {seconds:.0f} s, {words}",
        unit="msg/s",
        ours=[last],
        reference=[first],
        reference_name=f"first {scale.snapshot_window:g} s",
        target=target,
    )


def _usual_rate(scale: Scale, model: type[models.Model], start: Start) -> float:
    lot = refill(model, NOOP, scale.messages)
    with start() as process:
        return watch_drain(process, lot, deadline=START_SECONDS).rate


@contextmanager
def held_snapshot() -> Iterator[None]:
    """A session that has read something, and whose transaction stays open."""
    session = connection.copy()
    try:
        with session.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT count(*) FROM django_migrations")
            yield
    finally:
        session.close()
