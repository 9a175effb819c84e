"""What a topic, queue, key or id may look like."""

from __future__ import annotations

import unicodedata

from .exceptions import InvalidName

TOPIC_LENGTH = 200
QUEUE_LENGTH = 100
KEY_LENGTH = 200


def check_name(value: object, what: str, *, max_length: int, empty: bool = False) -> str:
    """The name itself, or InvalidName saying what is wrong with it."""
    if not isinstance(value, str):
        raise InvalidName(f"The {what} must be text, not {type(value).__name__}.")
    if not value and not empty:
        raise InvalidName(f"The {what} is empty.")
    if len(value) > max_length:
        raise InvalidName(f"The {what} has {len(value)} characters; {max_length} are allowed.")
    # Cc: control characters (they forge log lines). Cs: lone surrogates (no database stores them).
    if not value.isascii() or not value.isprintable():
        for char in value:
            if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp"):
                raise InvalidName(f"The {what} has a control character: {char!r}.")
    return value


def check_queue(value: object) -> str:
    """One that an option of the worker can name: they are listed with commas."""
    name = check_name(value, "queue", max_length=QUEUE_LENGTH)
    if "," in name or name != name.strip():
        raise InvalidName(
            f"The queue {name!r} has a comma, or a space at an end: --queues could not name it."
        )
    return name
