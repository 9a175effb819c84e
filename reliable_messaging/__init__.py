"""Reliable messaging for Django: an outbox whose messages live and die with your transaction.

The names below are loaded on first use, so this package can be imported before
Django's app registry is ready (as ``INSTALLED_APPS`` does).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import outbox
    from .exceptions import PermanentError, Retry, TransientError
    from .message import DeadLetter, Message, OutgoingMessage
    from .outbox import aenqueue, aenqueue_many, enqueue, enqueue_many
    from .registry import handler, on_dead

__all__ = [
    "DeadLetter",
    "Message",
    "OutgoingMessage",
    "PermanentError",
    "Retry",
    "TransientError",
    "aenqueue",
    "aenqueue_many",
    "enqueue",
    "enqueue_many",
    "handler",
    "on_dead",
    "outbox",
]

_HOMES = {
    "DeadLetter": "message",
    "Message": "message",
    "OutgoingMessage": "message",
    "PermanentError": "exceptions",
    "Retry": "exceptions",
    "TransientError": "exceptions",
    "aenqueue": "outbox",
    "aenqueue_many": "outbox",
    "enqueue": "outbox",
    "enqueue_many": "outbox",
    "handler": "registry",
    "on_dead": "registry",
}


def __getattr__(name: str) -> Any:
    if name == "outbox":
        return import_module(".outbox", __name__)
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
