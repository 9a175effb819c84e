"""Log lines that people can read and machines can take apart: an event and its fields."""

from __future__ import annotations

import logging
import re

logger = logging.getLogger("reliable_messaging")

_PLAIN = re.compile(r'[^\s"\\]+')


def event(level: int, name: str, /, **fields: object) -> None:
    """``name key=value …`` as the text; the same fields on the record, under ``rm``.

    Values are escaped, so that an error text with a line break cannot forge a second line.
    """
    if logger.isEnabledFor(level):
        line = " ".join([name, *[f"{key}={_escape(value)}" for key, value in fields.items()]])
        # Not logger.log(), which walks the stack at each line, to find that it was called from here.
        record = logger.makeRecord(logger.name, level, __file__, 0, "%s", (line,), None, "event")
        record.rm = {"event": name, **fields}
        logger.handle(record)


def _escape(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    if text.isprintable() and _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in escaped)
    return '"' + "".join(shown) + '"'
