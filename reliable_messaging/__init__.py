"""Reliable messaging for Django: an outbox whose messages live and die with your transaction.

The names below are loaded on first use, so this package can be imported before
Django's app registry is ready (as ``INSTALLED_APPS`` does).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import jobs, leases, outbox, timers
    from .exceptions import LeaseLost, LeaseUnavailable, PermanentError, Retry, TransientError
    from .jobs import periodic
    from .leases import HeldLease, lease, with_lease
    from .message import DeadLetter, Message, OutgoingMessage
    from .outbox import aenqueue, aenqueue_many, enqueue, enqueue_many
    from .registry import handler, on_dead

__all__ = [
    "DeadLetter",
    "HeldLease",
    "LeaseLost",
    "LeaseUnavailable",
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
    "jobs",
    "lease",
    "leases",
    "on_dead",
    "outbox",
    "periodic",
    "timers",
    "with_lease",
]

_HOMES = {
    "DeadLetter": "message",
    "HeldLease": "leases",
    "LeaseLost": "exceptions",
    "LeaseUnavailable": "exceptions",
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
    "lease": "leases",
    "on_dead": "registry",
    "periodic": "jobs",
    "with_lease": "leases",
}
_MODULES = ("jobs", "leases", "outbox", "timers")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
