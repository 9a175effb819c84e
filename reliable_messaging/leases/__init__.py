"""Named leases: an exclusive right that renews itself, and ends by itself when its holder is gone.

::

    with lease("nightly-report", duration=60) as held:
        for row in rows:
            held.raise_if_lost()
            write(row, fencing_token=held.token)

At most one holder at a time, by the database's clock. A holder that is paused does not know that its
time is over: what must not be written twice has to compare ``held.token``, which rises with each holder.
"""

from __future__ import annotations

from datetime import timedelta

from . import table
from .block import LeaseBlock, held_here
from .decorator import with_lease
from .held import HeldLease, LeaseTimes
from .table import LeaseAnswer
from .terms import Terms, alias_of

__all__ = [
    "HeldLease",
    "LeaseAnswer",
    "LeaseTimes",
    "aacquire",
    "acquire",
    "current",
    "holder",
    "known",
    "lease",
    "take_away",
    "with_lease",
]


def lease(
    name: str,
    *,
    duration: float | timedelta = 60,
    renew_at: float = 0.6,
    wait: float | timedelta = 0,
    owner: str | None = None,
    using: str | None = None,
) -> LeaseBlock:
    """Hold the lease for the length of a ``with`` or ``async with`` block.

    A thread renews it after ``renew_at`` of its duration. LeaseUnavailable when somebody else still holds it
    after ``wait`` seconds. LeaseLost at the end of the block when it was lost meanwhile: what the block did
    may not have been done alone. LeaseInTransaction inside ``transaction.atomic()``.
    """
    return LeaseBlock(
        Terms.of(name, duration=duration, renew_at=renew_at, wait=wait, owner=owner, using=using)
    )


def acquire(
    name: str,
    *,
    duration: float | timedelta = 60,
    renew_at: float = 0.6,
    wait: float | timedelta = 0,
    owner: str | None = None,
    using: str | None = None,
) -> HeldLease | None:
    """The lease, until you release it; None when somebody else still holds it after ``wait`` seconds."""
    block = lease(name, duration=duration, renew_at=renew_at, wait=wait, owner=owner, using=using)
    answer = block.acquire()
    return answer if isinstance(answer, HeldLease) else None


async def aacquire(
    name: str,
    *,
    duration: float | timedelta = 60,
    renew_at: float = 0.6,
    wait: float | timedelta = 0,
    owner: str | None = None,
    using: str | None = None,
) -> HeldLease | None:
    """``acquire`` for async code."""
    block = lease(name, duration=duration, renew_at=renew_at, wait=wait, owner=owner, using=using)
    answer = await block.aacquire()
    return answer if isinstance(answer, HeldLease) else None


def current(name: str, *, using: str | None = None) -> HeldLease | None:
    """The lease that a block or a decorator around this code holds."""
    return held_here(name, alias_of(using))


def holder(name: str, *, using: str | None = None) -> LeaseAnswer | None:
    """Who holds it, until when, and the database's time; None when nobody does."""
    answer = table.look(alias_of(using), name)
    return answer if answer is not None and answer.ends_in else None


def take_away(name: str, *, using: str | None = None) -> bool:
    """For operators: end the lease of whoever holds it. The holder learns of that at its next renewal, and
    goes on until then: only the token protects what it writes. False: nobody held it."""
    return table.take_away(alias_of(using), name)


def known(*, using: str | None = None) -> list[LeaseAnswer]:
    """Every lease that there ever was, by name."""
    return table.look_at_all(alias_of(using))
