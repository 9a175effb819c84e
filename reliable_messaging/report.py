"""What went wrong, as a value that can be stored."""

from __future__ import annotations

import hashlib
import traceback
from dataclasses import dataclass
from enum import IntEnum

MESSAGE_LENGTH = 2000
TRACEBACK_LENGTH = 20_000


class FailureKind(IntEnum):
    OWN = 0
    TRANSIENT = 1
    CRASH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReport:
    error_class: str
    message: str
    traceback: str = ""
    fingerprint: str
    kind: FailureKind = FailureKind.OWN

    @classmethod
    def from_exception(cls, exc: BaseException, kind: FailureKind = FailureKind.OWN) -> ErrorReport:
        error_class = f"{type(exc).__module__}.{type(exc).__qualname__}".removeprefix("builtins.")
        frames = traceback.extract_tb(exc.__traceback__)
        # The message is left out: it often has an id in it, and would part what belongs together.
        where = [f"{frame.filename}:{frame.name}" for frame in frames[-3:]]
        return cls(
            error_class=error_class,
            message=storable(_text(exc), MESSAGE_LENGTH),
            traceback=storable(_render(exc), TRACEBACK_LENGTH),
            fingerprint=_fingerprint(error_class, *where),
            kind=kind,
        )

    @classmethod
    def plain(cls, error_class: str, message: str, kind: FailureKind) -> ErrorReport:
        """For trouble that no exception tells of, such as a worker that died."""
        return cls(error_class=error_class, message=message, fingerprint=_fingerprint(error_class), kind=kind)

    def __str__(self) -> str:
        return f"{self.error_class}: {self.message}" if self.message else self.error_class


def storable(text: str, limit: int) -> str:
    """Text that every database takes: no NUL, no lone surrogate, bounded (the end is what tells)."""
    clean = text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()
    return clean if len(clean) <= limit else "…" + clean[-(limit - 1) :]


def _text(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception as broken:  # a __str__ that raises must not hide the failure itself
        return f"(its text cannot be shown: {type(broken).__name__})"


def _render(exc: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(exc, limit=-30))
    except Exception as broken:
        return f"(its traceback cannot be shown: {type(broken).__name__})"


def _fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:32]
