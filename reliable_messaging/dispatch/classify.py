"""Whose fault is an exception? It decides which budget pays."""

from __future__ import annotations

import asyncio
import smtplib

from ..db_errors import is_passing
from ..exceptions import LeaseLost, TransientError, Undeliverable
from ..report import FailureKind

INFRASTRUCTURE = (
    OSError,  # ConnectionError and TimeoutError among them
    asyncio.TimeoutError,  # one of its own before Python 3.11
    LeaseLost,
    TransientError,
    Undeliverable,
)
RETRYABLE_HTTP = frozenset({408, 409, 425, 429})


def classify(exc: BaseException) -> FailureKind:
    """By the exception, or by what it was explicitly raised from: HTTP clients wrap an OSError."""
    try:
        return FailureKind.TRANSIENT if _is_infrastructure(exc) else FailureKind.OWN
    except Exception:  # a property of a strange exception raised in turn
        return FailureKind.OWN


def _is_infrastructure(exc: BaseException | None) -> bool:
    seen = 0
    while exc is not None and seen < 10:
        status = _http_status(exc)
        if status is not None:
            return status in RETRYABLE_HTTP or status >= 500
        if isinstance(exc, smtplib.SMTPException):
            return not _refused_for_good(exc)
        if isinstance(exc, INFRASTRUCTURE) or is_passing(exc):
            return True
        exc, seen = exc.__cause__, seen + 1
    return False


def _http_status(exc: BaseException) -> int | None:
    """The status an HTTP client's exception carries: requests and httpx (response), urllib (code)."""
    response = getattr(exc, "response", None)
    code = getattr(exc, "code", None) if isinstance(exc, OSError) else None
    for value in (getattr(response, "status_code", None), code):
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return None


def _refused_for_good(exc: smtplib.SMTPException) -> bool:
    """A mail server says 5xx to what it will never take, and 4xx to what it may take later."""
    if isinstance(exc, smtplib.SMTPRecipientsRefused):
        codes = [answer[0] for answer in exc.recipients.values()]
    else:
        codes = [getattr(exc, "smtp_code", 0)]
    return bool(codes) and all(500 <= code <= 599 for code in codes)
