"""Sets of options for three kinds of sites. What is given besides goes first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    # Long queues and short handlers: a commit for every 500 messages, or for 50 atomic ones. More than
    # 50 would be near the 64 savepoints that PostgreSQL keeps in its quick memory.
    "throughput": {"batch_size": 500, "chunk_size": 50},
    # A small machine, or many workers beside each other: one thread, one database session for it, few looks.
    "low-resource": {
        "concurrency": 1,
        "batch_size": 10,
        "poll_min": timedelta(seconds=1),
        "poll_max": timedelta(seconds=30),
    },
    # Little to do, and all of it urgent: small claims, so that no message waits in one worker while
    # another is free; no chunks, so that none waits for its neighbours; quick looks.
    "real-time": {
        "batch_size": 10,
        "chunk_size": 1,
        "poll_min": timedelta(seconds=0.02),
        "poll_max": timedelta(seconds=1),
    },
}
