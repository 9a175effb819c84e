"""Payloads and headers to and from JSON text.

Everything is checked here, in Python, before the INSERT: an error from the database
would break the caller's transaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from .exceptions import InvalidPayload

MAX_DEPTH = 100
MAX_DEPTH_OF_HEADERS = 30
"""They are a JSON column, and MariaDB takes no more than 32 levels in one."""

_encoder = DjangoJSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
# An escaped NUL, not preceded by an odd backslash (which would make it plain text).
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def encode(value: Any, *, max_bytes: int, what: str = "payload", max_depth: int = MAX_DEPTH) -> str:
    """JSON text of anything DjangoJSONEncoder takes, or InvalidPayload saying what to change."""
    try:
        text = _encoder.encode(value)
    except RecursionError:
        raise InvalidPayload(f"The {what} is nested deeper than {max_depth} levels.") from None
    except Exception as exc:  # of any kind: a lazy text, a __str__ or a property of the caller's may raise
        raise InvalidPayload(f"The {what} cannot be written as JSON: {type(exc).__name__}: {exc}.") from exc
    check_text(text, max_bytes=max_bytes, what=what, max_depth=max_depth)
    return text


def check_text(text: str, *, max_bytes: int, what: str, max_depth: int = MAX_DEPTH) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidPayload(f"The {what} has a lone surrogate, which is not valid Unicode text.") from None
    if size > max_bytes:
        raise InvalidPayload(
            f"The {what} has {size:,} bytes; MAX_PAYLOAD_BYTES allows {max_bytes:,}. "
            "Store the data elsewhere and send a reference to it."
        )
    if "\\u0000" in text and _NUL.search(text):
        raise InvalidPayload(f"The {what} has a NUL character, which databases and receivers refuse.")
    if text.count("[") + text.count("{") > max_depth and _depth(text) > max_depth:
        raise InvalidPayload(f"The {what} is nested deeper than {max_depth} levels.")


def encode_headers(headers: Mapping[str, Any] | None, *, max_bytes: int) -> dict[str, Any]:
    """Headers as plain JSON values, with text keys."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise InvalidPayload(f"headers must be a mapping, not {type(headers).__name__}.")
    if not headers:
        return {}
    for name in headers:
        if not isinstance(name, str):
            raise InvalidPayload(f"Header names must be text, not {name!r}.")
    text = encode(dict(headers), max_bytes=max_bytes, what="headers", max_depth=MAX_DEPTH_OF_HEADERS)
    decoded: dict[str, Any] = decode(text)
    return decoded


def decode(text: str) -> Any:
    return json.loads(text)


def _depth(text: str) -> int:
    deepest = depth = 0
    for char in _STRING.sub("", text):
        if char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest
