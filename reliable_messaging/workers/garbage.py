"""Python's search for garbage in cycles, made seldom in a process that is a worker and nothing else."""

from __future__ import annotations

import gc

BETWEEN_SEARCHES = 5_000
"""Objects that stay, until the next search. At Python's own 700 a batch of messages is searched while it
waits for its acknowledgement, and a tenth of a worker's time goes into that."""


def search_seldom() -> None:
    """Once all is imported: that is never garbage, and need not be looked through again. A project that
    searches more seldom still, or never (0), keeps its way."""
    gc.collect()
    gc.freeze()
    present, *others = gc.get_threshold()
    if 0 < present < BETWEEN_SEARCHES:
        gc.set_threshold(BETWEEN_SEARCHES, *others)
