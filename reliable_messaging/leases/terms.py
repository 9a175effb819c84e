"""What is asked for when a lease is."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import router

from ..alias import choose_alias
from ..durations import as_duration
from ..exceptions import InvalidLease
from ..models import Lease
from ..names import KEY_LENGTH, check_name

SAFE_SHARE = 0.95
"""A holder that could not renew takes the lease for lost when so much of it is over. The rest is for clocks
that do not run quite alike, and for the time it takes to stop."""
LATEST_RENEWAL = 0.9
SHORTEST = timedelta(milliseconds=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    name: str
    duration: timedelta
    renew_at: float
    """The share of the duration after which it is renewed."""
    wait: timedelta
    owner: str | None
    using: str | None

    @classmethod
    def of(
        cls, name: str, *, duration: Any, renew_at: float, wait: Any, owner: str | None, using: str | None
    ) -> Terms:
        """Checked: nothing is wrong with them once they are made."""
        lasts = as_duration(duration, "duration", error=InvalidLease, zero=False)
        if lasts < SHORTEST:
            raise InvalidLease(f"duration must be at least {SHORTEST.total_seconds():g} s, not {duration!r}.")
        if isinstance(renew_at, bool) or not isinstance(renew_at, (int, float)):
            raise InvalidLease(f"renew_at must be a number, not {renew_at!r}.")
        if not 0 < renew_at <= LATEST_RENEWAL:
            raise InvalidLease(
                f"renew_at is a share of the duration: more than 0 and {LATEST_RENEWAL:g} at most, "
                f"not {renew_at!r}."
            )
        return cls(
            name=check_name(name, "lease name", max_length=KEY_LENGTH),
            duration=lasts,
            renew_at=renew_at,
            wait=as_duration(wait, "wait", error=InvalidLease),
            owner=None if owner is None else check_name(owner, "lease owner", max_length=KEY_LENGTH),
            using=using,
        )

    @property
    def alias(self) -> str:
        return alias_of(self.using)

    @property
    def owner_name(self) -> str:
        """By default this process: asked for at each acquisition, because processes fork."""
        return self.owner if self.owner is not None else f"{socket.gethostname()[:150]}:{os.getpid()}"


def alias_of(using: str | None) -> str:
    """Not the one that is inside a transaction, as with messages: a lease is no part of it."""
    return choose_alias(using) if using is not None else router.db_for_write(Lease)
