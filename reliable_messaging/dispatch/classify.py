"""Whose fault is an exception? It decides which budget pays."""

from __future__ import annotations

from django.db import InterfaceError, OperationalError

from ..exceptions import TransientError, UnknownTopic
from ..report import FailureKind

INFRASTRUCTURE = (OSError, OperationalError, InterfaceError, TransientError, UnknownTopic)
"""OSError covers ConnectionError, TimeoutError and what HTTP clients derive from them."""

RETRYABLE_HTTP = frozenset({408, 409, 425, 429})


def classify(exc: BaseException) -> FailureKind:
    status = _http_status(exc)
    if status is not None:
        retryable = status in RETRYABLE_HTTP or status >= 500
        return FailureKind.TRANSIENT if retryable else FailureKind.OWN
    return FailureKind.TRANSIENT if isinstance(exc, INFRASTRUCTURE) else FailureKind.OWN


def _http_status(exc: BaseException) -> int | None:
    """The status an HTTP client's exception carries: requests, httpx (response), urllib (code)."""
    response = getattr(exc, "response", None)
    for value in (getattr(response, "status_code", None), getattr(exc, "code", None)):
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return None
