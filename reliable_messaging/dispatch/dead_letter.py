"""The message that tells of another message's end."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.utils.dateparse import parse_datetime

from ..message import DeadLetter, Message
from ..models import Status

LEFT_OUT = ("owner_token", "claimed_at", "stop_requested", "using")
MOMENTS = ("created_at", "due_at", "first_failed_at", "scheduled_for")


def notice_payload(item: Message, status: Status, error: str) -> str:
    """All of the message that ended: its own row may be purged before the callback runs."""
    ended = {name: value for name, value in asdict(item).items() if name not in LEFT_OUT}
    if item.scheduled_for is None:  # workers of an older version do not know it
        del ended["scheduled_for"]
    told = {"status": status.name.lower(), "error": error, "message": ended}
    return json.dumps(told, cls=DjangoJSONEncoder)


def dead_letter(notice: Message) -> DeadLetter:
    """What an ``@on_dead`` callback gets."""
    told = notice.payload
    values: dict[str, Any] = {**told["message"], "id": UUID(told["message"]["id"])}
    if values["causation_id"] is not None:
        values["causation_id"] = UUID(values["causation_id"])
    for name in MOMENTS:
        if values.get(name) is not None:
            values[name] = parse_datetime(values[name])
    message = Message(**values, using=notice.using)
    return DeadLetter(message=message, status=told["status"], error=told["error"])
