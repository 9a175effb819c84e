"""The message that tells of another message's end."""

from __future__ import annotations

import json

from ..exceptions import PermanentError
from ..message import DeadLetter, Message
from ..models import OutboxMessage, Status


def notice_payload(item: Message, status: Status, error: str) -> str:
    return json.dumps({"id": str(item.id), "status": status.name.lower(), "error": error})


def dead_letter(notice: Message) -> DeadLetter:
    """What an ``@on_dead`` callback gets: the message that ended, read again from its table."""
    told = notice.payload
    row = OutboxMessage._base_manager.using(notice.using).filter(pk=told["id"]).first()
    if row is None:
        raise PermanentError(f"The message {told['id']} that ended was deleted meanwhile.")
    return DeadLetter(message=row.as_message(), status=told["status"], error=told["error"])
