"""From a claimed message to an Outcome. Nothing here settles: whoever claimed does."""

from .leased import under_lease, wait_for
from .outcome import Done, Failed, Outcome, Released
from .run import run, settlement_for
from .run_async import run_async, run_to_end

__all__ = [
    "Done",
    "Failed",
    "Outcome",
    "Released",
    "run",
    "run_async",
    "run_to_end",
    "settlement_for",
    "under_lease",
    "wait_for",
]
