"""Run the async handler of one message."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

from asgiref.sync import async_to_sync

from .. import clock
from ..failpoints import hit
from ..message import Message, current_message
from ..registry import Handler
from .dead_letter import dead_letter
from .isolate import UNSTARTED, exit_code, isolated, nothing_ran
from .outcome import Done, Outcome, Released
from .run import _outcome, _result, _undeliverable
from .sessions import thread
from .watch import Watch


async def run_async(message: Message, handler: Handler | None) -> Outcome:
    """Await the handler and say how it went, as ``run`` does. In a task of its own: what it sets in its
    context ends with that.

    Every exception becomes an outcome. SystemExit would leave the event loop, and take every other
    handler there along. A cancellation is the handler's own failure, unless it had been told to stop."""
    started = clock.monotonic()
    try:
        if handler is None:
            raise _undeliverable(message)
        result = await _call(handler, message)
        return Done(result=result, duration=clock.monotonic() - started)
    except GeneratorExit:
        raise  # nobody waits for this coroutine any more: it is only being tidied away
    except asyncio.CancelledError as exc:
        if message.should_stop:
            return Released(delay=timedelta(0))
        return _outcome(exc, clock.monotonic() - started)
    except BaseException as exc:
        return _outcome(exc, clock.monotonic() - started)


def run_to_end(message: Message, handler: Handler) -> Outcome:
    """The same from sync code, on this thread's connections."""
    started = clock.monotonic()
    outcome: Outcome | None = None
    try:
        with Watch():
            outcome = isolated(async_to_sync(run_async), message, handler)
    except BaseException as exc:
        if outcome is None or isinstance(outcome, Done):  # the handler's own error goes first
            outcome = _outcome(exc, clock.monotonic() - started)
    return outcome


async def _call(handler: Handler, message: Message) -> str | None:
    current_message.set(message)
    argument = dead_letter(message) if handler.is_for_dead_letters else message
    hit("handler-start")
    try:
        returned = await handler.function(argument)
    except BaseException as exc:
        _end_copy(exit_code(exc))
        raise
    _end_copy(0)
    hit("handler-effect")
    if isinstance(returned, UNSTARTED):
        raise nothing_ran(returned)
    return _result(message, returned)


def _end_copy(code: int) -> None:
    """In a child that the handler made by ``os.fork()``: it has a copy of the event loop, and would go on
    with every handler that its parent runs."""
    if thread.is_forked:
        os._exit(code)
