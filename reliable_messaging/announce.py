"""What follows a transition of an outbox message: its dead letter, its log line, its signal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.dispatch import Signal

from . import clock, logs, signals, tally
from .conf import get_settings
from .dispatch.dead_letter import notice_payload
from .hooks import on_commit
from .job_outcomes import store_outcomes
from .message import Message
from .models import OutboxMessage, Status, Timer
from .registry import registry
from .report import FailureKind
from .storing import by_size
from .terminal import terminal
from .wakeup import wake_workers
from .workqueue import Acknowledged, Transition

CHARGED = {
    FailureKind.OWN: "own",
    FailureKind.TRANSIENT: "infrastructure",
    FailureKind.CRASH: "crash",
}
"""Which budget pays, in the words of the admin."""

UNTRIED = (Status.EXPIRED, Status.CANCELLED)
"""Nobody ran it just then."""
Teller = Callable[[str, Sequence[Transition]], None]


def announce(using: str, transitions: Sequence[Transition], *, teller: Teller | None = None) -> None:
    """The outbox queue's observer. Dead letters and the outcomes of runs are written here, inside the
    transaction; what only tells (log lines, signals) waits for the commit."""
    if not isinstance(transitions, Acknowledged):  # a run's never goes that way
        store_outcomes(using, [t for t in transitions if t.item.scheduled_for is not None])
    if _all_done(transitions):
        on_commit(using, teller or tell, using, transitions)
        return
    notices = [row for t in transitions if (row := _dead_letter_row(t)) is not None]
    for part in by_size(notices):
        OutboxMessage._base_manager.using(using).bulk_create(part)
    if notices or any(t.status == Status.READY and _is_due(t) for t in transitions):
        on_commit(using, wake_workers, using)
    on_commit(using, teller or tell, using, transitions)


def tell_enqueued(using: str, rows: Sequence[OutboxMessage]) -> None:
    """The workers first: they wait, and the others do not."""
    if any(is_due_soon(row) for row in rows):
        wake_workers(using)
    if not (logs.logger.isEnabledFor(logging.INFO) or signals.enqueued.has_listeners(OutboxMessage)):
        return
    for row in rows:
        logs.event(logging.INFO, "message enqueued", **_identity(using, row))
        _send(signals.enqueued, message=row, using=using)


def tell(using: str, transitions: Sequence[Transition]) -> None:
    """Log lines and signals: after the commit."""
    with_line = len(transitions)
    if _all_done(transitions):
        with_line = tally.done.shows(with_line) if logs.logger.isEnabledFor(logging.INFO) else 0
        if not signals.done.has_listeners(OutboxMessage):
            transitions = transitions[:with_line]
    with terminal.together():
        for number, transition in enumerate(transitions):
            _tell_one(using, transition, with_line=number < with_line)


def _all_done(transitions: Sequence[Transition]) -> bool:
    if isinstance(transitions, Acknowledged):
        return True
    return all(transition.status == Status.DONE for transition in transitions)


def _tell_one(using: str, transition: Transition, *, with_line: bool) -> None:
    level, words, signal = _kind(transition)
    error = str(transition.error) if transition.error else ""
    if with_line and logs.logger.isEnabledFor(level):
        logs.event(level, words, **_fields(using, transition, error))
    if signal is not None:
        _send(signal, message=transition.item, using=using, error=error)


def _kind(transition: Transition) -> tuple[int, str, Signal | None]:
    if transition.status == Status.DONE:
        return logging.INFO, "message done", signals.done
    if transition.status == Status.DEAD:
        return logging.ERROR, "message dead", signals.dead
    if transition.status == Status.EXPIRED:
        return logging.WARNING, "message expired", signals.expired
    if transition.status == Status.CANCELLED:
        return logging.INFO, "message cancelled", None
    if transition.error is not None:
        return logging.WARNING, "message retrying", signals.retrying
    return logging.DEBUG, "message ready", None


def _fields(using: str, transition: Transition, error: str) -> dict[str, object]:
    item: Message = transition.item
    fields = _identity(using, item)
    if transition.status in UNTRIED:
        return fields
    fields["attempt"] = item.attempts
    crashed = transition.error is not None and transition.error.kind == FailureKind.CRASH
    if not crashed:  # nobody knows how long a worker that died was at it
        fields["duration"] = transition.duration
    if transition.error is not None:
        fields["charged"] = CHARGED[transition.error.kind]
        fields |= _budget(transition)
    if crashed:
        fields["worker"] = transition.worker_id
    if transition.delay is not None:
        fields["retry_in"] = transition.delay.total_seconds()
    if error:
        fields["error"] = error
    return fields


def _budget(transition: Transition) -> dict[str, object]:
    """How much of the one that pays is used up by now."""
    assert transition.error is not None
    item: Message = transition.item
    if transition.error.kind == FailureKind.CRASH:
        return {"crashes": f"{item.crashes + 1}/{get_settings().MAX_CRASHES}"}
    if transition.error.kind == FailureKind.OWN:
        return {"failures": f"{item.failures + 1}/{item.max_attempts}"}
    since = item.first_failed_at or item.claimed_at
    window = {} if since is None else {"tried_until": (since + get_settings().TRANSIENT_WINDOW).isoformat()}
    return {"transient_failures": item.transient_failures + 1, **window}


def _identity(using: str, message: Message | OutboxMessage) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": message.id,
        "topic": message.topic,
        "queue": message.queue,
        "database": using,
    }
    if message.correlation_id:
        fields["correlation_id"] = message.correlation_id
    return fields


def _is_due(ready: Transition) -> bool:
    """Released, requeued or retried now; not one that waits for its next attempt."""
    return ready.error is None and not ready.delay


def is_due_soon(row: OutboxMessage | Timer) -> bool:
    """Before an idle worker looks by itself. By this process's clock where the database's does not tell: one
    NOTIFY too many does no harm."""
    due: Any = row.due_at
    if not isinstance(due, datetime):
        return True
    ahead = get_settings().POLL_MAX
    return due <= row.created_at + ahead or due <= clock.utcnow() + ahead


def _send(signal: Signal, **values: Any) -> None:
    if signal.has_listeners(OutboxMessage):
        for receiver, answer in signal.send_robust(OutboxMessage, **values):
            if isinstance(answer, Exception):
                logs.logger.error("A signal receiver failed: %r", receiver, exc_info=answer)


def _dead_letter_row(transition: Transition) -> OutboxMessage | None:
    if transition.status not in (Status.DEAD, Status.EXPIRED):
        return None
    item: Message = transition.item
    callback = registry.find_for_dead_letters(item.topic)
    if callback is None:
        return None
    error = str(transition.error) if transition.error else item.last_error
    # Not through the checks of enqueue(): nothing may stop the transition itself, not even a low
    # MAX_PAYLOAD_BYTES.
    return OutboxMessage(
        topic=callback.topic,
        payload=notice_payload(item, transition.status, error),
        queue=callback.queue,
        max_attempts=callback.max_attempts or get_settings().MAX_ATTEMPTS,
        correlation_id=item.correlation_id or str(item.id),
        causation_id=item.id,
    )
