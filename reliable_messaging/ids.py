"""UUIDv7: ids that sort by time, known before the INSERT, increasing within a process."""

from __future__ import annotations

import os
import threading
import time
from datetime import datetime
from uuid import UUID

_TAIL_BITS = 74  # 12 of rand_a and 62 of rand_b
_lock = threading.Lock()
_last_ms = 0
_last_tail = 0


def uuid7() -> UUID:
    global _last_ms, _last_tail
    random = int.from_bytes(os.urandom(10), "big")
    ms = time.time_ns() // 1_000_000
    with _lock:
        if ms > _last_ms:
            # The top bit stays free, so that steps within this millisecond cannot overflow.
            _last_ms, _last_tail = ms, random >> (80 - _TAIL_BITS + 1)
        else:
            # Same millisecond, or the wall clock went back: step on from the last one.
            _last_tail += 1 + (random & 0xFFFFFFFF)
        return _compose(_last_ms, _last_tail)


def lowest_uuid7(moment: datetime) -> UUID:
    """The lowest id that an item made at that moment could have."""
    return _compose(int(moment.timestamp() * 1000), 0)


def _compose(ms: int, tail: int) -> UUID:
    rand_a, rand_b = (tail >> 62) & 0xFFF, tail & ((1 << 62) - 1)
    return UUID(int=(ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b)


def _forget() -> None:
    global _lock, _last_ms
    # A forked child would otherwise step on from its parent's last id, as its siblings do.
    _lock, _last_ms = threading.Lock(), 0


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_forget)
