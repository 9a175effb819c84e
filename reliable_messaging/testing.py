"""For the tests of a project that uses this one."""

from __future__ import annotations

from django.db import transaction

from . import jobs, outbox, timers
from .alias import choose_alias
from .dispatch import Outcome, Released, run, run_to_end, settlement_for, under_lease, wait_for
from .exceptions import LeaseUnavailable
from .message import Message
from .registry import Handler, registry
from .workqueue import WorkQueue


def run_due(*, using: str | None = None, limit: int = 1000) -> list[Message]:
    """Run every due message here and now, in this thread and on this connection, until none is due.

    So it works inside a TestCase, whose transaction no worker could see. Handlers, retries, budgets
    and dead letters are the real ones; an atomic handler's writes are undone when it fails. Move
    the clock with ``reliable_messaging.clock.travel()`` to reach a retry, a delay, a timer or a job.
    Returns the messages that were run, in order; raises when ``limit`` of them were not enough.
    """
    queue = outbox.queue.using(choose_alias(using))
    ran: list[Message] = []
    while message := _next(queue):
        if len(ran) >= limit:
            queue.release([message])
            raise AssertionError(f"More than {limit} messages were due: do they enqueue each other?")
        handler = registry.find(message.topic)
        if handler is not None and handler.is_async:
            outcome = run_to_end(message, handler)
        elif handler is not None and handler.atomic:
            outcome = _run_atomic(message, handler, queue.alias)
        else:
            outcome = run(message, handler)
        queue.settle([settlement_for(message, handler, outcome)])
        ran.append(message)
    return ran


def _run_atomic(message: Message, handler: Handler, using: str) -> Outcome:
    try:
        with under_lease(handler):
            return run(message, handler, inside=lambda: transaction.atomic(using=using))
    except LeaseUnavailable as exc:
        return Released(delay=wait_for(exc))


def _next(queue: WorkQueue[Message]) -> Message | None:
    queue.reap()
    queue.expire()
    timers.fire_all_due(using=queue.alias)
    jobs.fire_all_due(using=queue.alias)
    return next(iter(queue.claim(limit=1) or queue.claim_suspect()), None)
