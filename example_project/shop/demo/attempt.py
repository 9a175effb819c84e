from __future__ import annotations

from collections.abc import Callable

from .finding import Finding
from .scene import Scene
from .waiting import DeadlinePassed

Step = Callable[[Scene], Finding]


def attempt(promise: str, step: Step, scene: Scene) -> Finding:
    """Take the step. One that fails, or waits in vain, has not shown its promise kept."""
    try:
        return step(scene)
    except DeadlinePassed as exc:
        return Finding(promise=promise, seen=str(exc), kept=False)
    except Exception as exc:
        return Finding(promise=promise, seen=f"{type(exc).__name__}: {exc}", kept=False)
