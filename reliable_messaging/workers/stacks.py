"""Where a handler stands, as the lines of a traceback."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

FRAMES = 30
"""The innermost are what tells."""
LINKS = 1000
"""Of a chain that is followed while it changes."""
INSIDE = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"))


def thread_stack(ident: int) -> str:
    frame = sys._current_frames().get(ident)
    return "".join(traceback.format_stack(frame)[-FRAMES:]) if frame is not None else ""


def coroutine_stack(coroutine: Any) -> str:
    """Of one that waits: itself, what it awaits, what that awaits."""
    found = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in _frames(coroutine))
    return "".join(found.format()[-FRAMES:])


def _frames(coroutine: Any) -> Iterator[FrameType]:
    for _ in range(LINKS):
        for frame_name, next_name in INSIDE:
            frame = getattr(coroutine, frame_name, None)
            if frame is not None:
                yield frame
                coroutine = getattr(coroutine, next_name)
                break
        else:
            return
