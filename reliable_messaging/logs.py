"""Log lines that people can read and machines can take apart: an event and its fields."""

from __future__ import annotations

import logging

logger = logging.getLogger("reliable_messaging")


def event(level: int, name: str, /, **fields: object) -> None:
    """``name key=value …`` as the text; the same fields on the record, under ``rm``.

    Values are escaped, so that an error text with a line break cannot forge a second line.
    """
    if logger.isEnabledFor(level):
        line = " ".join([name, *(f"{key}={_escape(value)}" for key, value in fields.items())])
        logger.log(level, "%s", line, extra={"rm": {"event": name, **fields}})


def _escape(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    if text and text.isprintable() and not any(c in text for c in ' "\\'):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in escaped)
    return '"' + "".join(shown) + '"'
