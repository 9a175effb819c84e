"""Run the handler of one message."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

from django.db import connections

from .. import clock, codec, logs
from ..conf import get_settings
from ..exceptions import InvalidPayload, LeaseUnavailable, PermanentError, Retry, Undeliverable
from ..failpoints import hit
from ..message import Message, current_message
from ..registry import Handler
from ..report import ErrorReport, FailureKind
from ..retry import LONGEST_WAIT, default_backoff
from ..workqueue import Abandon, Ack, Fail, Release, Settlement
from .classify import classify
from .dead_letter import dead_letter
from .isolate import UNSTARTED, isolated, nothing_ran
from .leased import wait_for
from .outcome import Done, Failed, Outcome, Released
from .sessions import session_of
from .watch import Watch


def run(
    message: Message,
    handler: Handler | None,
    *,
    inside: Callable[[], AbstractContextManager[Any]] = nullcontext,
    connection: Any = None,
) -> Outcome:
    """Call the handler and say how it went. ``inside`` opens the block it runs in, such as a
    savepoint: an exception leaves that block too, so what the handler wrote is undone. It is a block
    on ``connection``, by default that of the message's alias.

    Every exception becomes an outcome, SystemExit and MemoryError among them: a handler that
    calls ``sys.exit()`` has failed, and takes no worker with it. Only an error of ``inside`` before
    the handler has started is raised: it is not the message's.
    """
    started = clock.monotonic()
    entered = False
    try:
        if handler is None:
            raise _undeliverable(message)
        with inside():
            entered = True
            with Watch(connection or _connection(message)) if handler.atomic else Watch():
                result = isolated(_call, handler, message)
        return Done(result=result, duration=clock.monotonic() - started)
    except BaseException as exc:
        if handler is not None and not entered:
            raise
        return _outcome(exc, clock.monotonic() - started)


def settlement_for(message: Message, handler: Handler | None, outcome: Outcome) -> Settlement:
    """What the outcome asks the queue to do."""
    if isinstance(outcome, Done):
        return Ack(item=message, result=outcome.result, duration=outcome.duration)
    if isinstance(outcome, Released):
        # Without a time of its own it waits like a failure: due at once, it would spin.
        return Release(item=message, delay=_delay(outcome, handler, message.attempts - 1))
    if outcome.permanent:
        return Fail(item=message, error=outcome.error, duration=outcome.duration)
    transient = outcome.error.kind == FailureKind.TRANSIENT
    earlier = message.transient_failures if transient else message.failures
    delay = _delay(outcome, handler, earlier)
    return Abandon(item=message, error=outcome.error, delay=delay, duration=outcome.duration)


def _call(handler: Handler, message: Message) -> str | None:
    current_message.set(message)  # in a copy of the context: it ends with this call
    argument = dead_letter(message) if handler.is_for_dead_letters else message
    hit("handler-start")
    returned = handler.function(argument)
    hit("handler-effect")
    if isinstance(returned, UNSTARTED):
        raise nothing_ran(returned)
    return _result(message, returned)


def _connection(message: Message) -> Any:
    connection = connections[message.using]
    session_of(connection)
    return connection


def _undeliverable(message: Message) -> Undeliverable:
    return Undeliverable(
        f"No handler for the topic {message.topic!r} is known to this worker. "
        "If the handler is new, restart the workers with the new code."
    )


def _delay(outcome: Failed | Released, handler: Handler | None, earlier: int) -> timedelta:
    wait = _wait(handler, earlier) if outcome.delay is None else outcome.delay
    return max(timedelta(0), min(wait, LONGEST_WAIT))


def _wait(handler: Handler | None, earlier: int) -> timedelta:
    if handler is not None and handler.backoff is not None:
        try:
            wait: Any = handler.backoff(earlier)
            return wait if isinstance(wait, timedelta) else timedelta(seconds=wait)
        except Exception:
            logs.logger.exception(
                "The backoff of the handler for %r failed; the default is used.", handler.topic
            )
    return default_backoff(earlier)


def _outcome(exc: BaseException, duration: float) -> Outcome:
    if isinstance(exc, Retry) and not exc.charge:
        return Released(delay=exc.after)
    if isinstance(exc, LeaseUnavailable):
        return Released(delay=wait_for(exc))
    return Failed(
        error=ErrorReport.from_exception(exc, classify(exc)),
        permanent=isinstance(exc, PermanentError),
        delay=exc.after if isinstance(exc, Retry) else None,
        duration=duration,
    )


def _result(message: Message, returned: Any) -> str | None:
    if returned is None:
        return None
    try:
        return codec.encode(returned, max_bytes=get_settings().MAX_PAYLOAD_BYTES, what="return value")
    except BaseException as exc:  # a property or a __str__ of the handler's may raise anything
        # The work is done. To fail now would do it again, for the sake of a value nobody may want.
        reason = str(exc) if isinstance(exc, InvalidPayload) else type(exc).__name__
        logs.event(logging.WARNING, "result dropped", id=message.id, topic=message.topic, reason=reason)
        return None
