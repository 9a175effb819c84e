"""For the tests of a project that uses this one."""

from __future__ import annotations

from django.db import transaction

from . import outbox
from .alias import choose_alias
from .dispatch import run, run_to_end, settlement_for
from .message import Message
from .registry import registry
from .workqueue import WorkQueue


def run_due(*, using: str | None = None, limit: int = 1000) -> list[Message]:
    """Run every due message here and now, in this thread and on this connection, until none is due.

    So it works inside a TestCase, whose transaction no worker could see. Handlers, retries, budgets
    and dead letters are the real ones; an atomic handler's writes are undone when it fails. Move
    the clock with ``reliable_messaging.clock.travel()`` to reach a retry or a delay. Returns the
    messages that were run, in order; raises when ``limit`` of them were not enough.
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
            outcome = run(message, handler, inside=lambda: transaction.atomic(using=queue.alias))
        else:
            outcome = run(message, handler)
        queue.settle([settlement_for(message, handler, outcome)])
        ran.append(message)
    return ran


def _next(queue: WorkQueue[Message]) -> Message | None:
    queue.reap()
    queue.expire()
    return next(iter(queue.claim(limit=1) or queue.claim_suspect()), None)
