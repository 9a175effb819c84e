from __future__ import annotations

import logging
from collections.abc import Iterable

from .. import logs
from ..message import Message


def report_lost(messages: Iterable[Message]) -> None:
    """Never ignored: someone else has these, and may run them a second time."""
    for message in messages:
        logs.event(
            logging.WARNING,
            "claim lost",
            id=message.id,
            topic=message.topic,
            queue=message.queue,
            attempt=message.attempts,
        )
