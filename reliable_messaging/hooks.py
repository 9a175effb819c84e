"""What runs after a commit, and cannot harm whoever committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import transaction


def on_commit(using: str, function: Callable[..., None], *arguments: Any) -> None:
    """An on_commit hook of ours: it cannot break anything, and does not end a chunk."""

    # Not a partial: Django asks a robust hook that failed for its __qualname__.
    def hook() -> None:
        function(*arguments)

    hook.is_ours = True  # type: ignore[attr-defined]
    transaction.on_commit(hook, using=using, robust=True)


def is_ours(hook: Any) -> bool:
    return getattr(hook, "is_ours", False)
