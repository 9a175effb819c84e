"""Every guard of the app, and the test that fails without it: ``make guards`` tries them all."""

from __future__ import annotations

from . import claim, settle, sweep
from .guard import Guard

GUARDS: list[Guard] = [*claim.GUARDS, *settle.GUARDS, *sweep.GUARDS]

__all__ = ["GUARDS", "Guard"]
