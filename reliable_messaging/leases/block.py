"""Acquiring: at once, or by waiting; as a value, or for the length of a block."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import partial
from types import TracebackType
from typing import TypeVar

from asgiref.sync import sync_to_async

from .. import clock
from ..exceptions import LeaseUnavailable
from . import table
from .held import HeldLease
from .keeper import keeper_of
from .table import LeaseAnswer
from .terms import Terms

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0

T = TypeVar("T")
Holding = dict[tuple[str, str], HeldLease]

_holding: ContextVar[Holding] = ContextVar("reliable_messaging_leases", default={})  # noqa: B039  (never changed)


class LeaseBlock:
    """``with`` and ``async with``. Made for one use."""

    def __init__(self, terms: Terms, *, give_up: Callable[[], bool] = lambda: False) -> None:
        self.terms = terms
        self._give_up = give_up
        """Asked between two tries: whoever waits may be told to stop."""
        self._held: HeldLease | None = None
        self._reset: Token[Holding] | None = None

    def acquire(self) -> HeldLease | LeaseAnswer:
        """The lease; or what the database says of its holder, when the time for waiting is over."""
        for pause in self._pauses():
            time.sleep(pause)
            answer = self._try()
            if isinstance(answer, HeldLease):
                return answer
            self._refusal = answer
        return self._refusal

    async def aacquire(self) -> HeldLease | LeaseAnswer:
        for pause in self._pauses():
            await asyncio.sleep(pause)
            answer = await _to_its_end(self._try, undo=_give_back)
            if isinstance(answer, HeldLease):
                return answer
            self._refusal = answer
        return self._refusal

    def __enter__(self) -> HeldLease:
        return self._enter(self.acquire())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.leave(quietly=error is not None)

    def leave(self, *, quietly: bool) -> None:
        self._ended().leave(quietly=quietly)

    async def __aenter__(self) -> HeldLease:
        return self._enter(await self.aacquire())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await _to_its_end(partial(self._ended().leave, quietly=error is not None))

    def _try(self) -> HeldLease | LeaseAnswer:
        terms, began = self.terms, clock.monotonic()
        alias = terms.alias
        answer = table.take(alias, terms.name, owner=terms.owner_name, duration=terms.duration)
        if not answer.ours:
            return answer
        keeper = keeper_of(alias)
        held = HeldLease(terms, answer, began=began, on_end=keeper.drop)
        try:
            keeper.keep(held)
        except BaseException:  # no thread to be had: it could not be renewed
            held.leave(quietly=True)
            raise
        return held

    def _pauses(self) -> Iterator[float]:
        """Before each try: none before the first, and none that would end after the wait. No longer than
        the holder's lease lasts."""
        yield 0.0
        until = clock.monotonic() + self.terms.wait.total_seconds()
        pause = FIRST_PAUSE
        while (left := until - clock.monotonic()) > 0 and not self._give_up():
            ends_in = self._refusal.ends_in.total_seconds()
            yield min(left, ends_in, pause * random.uniform(0.5, 1))
            pause = min(pause * 1.5, LONGEST_PAUSE)

    def _enter(self, answer: HeldLease | LeaseAnswer) -> HeldLease:
        if not isinstance(answer, HeldLease):
            raise _unavailable(self.terms, answer)
        self._held = answer
        self._reset = _holding.set({**_holding.get(), (answer.using, answer.name): answer})
        return answer

    def _ended(self) -> HeldLease:
        assert self._held is not None
        assert self._reset is not None
        with suppress(ValueError):  # a generator that is closed elsewhere leaves its block in another context
            _holding.reset(self._reset)
        return self._held


def held_here(name: str, alias: str) -> HeldLease | None:
    """What a block around this code holds. Not what it has given back, while a task that began inside goes
    on; nor what belongs to the process that this one was forked from."""
    held = _holding.get().get((alias, name))
    return held if held is not None and held.is_ours else None


async def _to_its_end(work: Callable[[], T], *, undo: Callable[[T], object] | None = None) -> T:
    """Work on a thread goes on when the task that waits for it is cancelled. Then it is waited for all the
    same, and what it got is given back: nobody else could."""
    task = asyncio.ensure_future(sync_to_async(work)())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        result = await task
        if undo is not None:
            await sync_to_async(undo)(result)
        raise


def _give_back(answer: HeldLease | LeaseAnswer) -> None:
    if isinstance(answer, HeldLease):
        answer.leave(quietly=True)


def _unavailable(terms: Terms, answer: LeaseAnswer) -> LeaseUnavailable:
    return LeaseUnavailable(
        f"The lease {terms.name!r} is held by {answer.owner}; it ends in "
        f"{answer.ends_in.total_seconds():.1f} s unless it is renewed.",
        name=terms.name,
        owner=answer.owner,
        expires_at=answer.expires_at,
        server_time=answer.server_time,
    )
