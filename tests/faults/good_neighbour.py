"""A good handler, which notices when a bad one before it has left something behind."""

from __future__ import annotations

import decimal
from functools import cache
from typing import Any

from django.db import connections
from django.utils import timezone, translation

from reliable_messaging import Message, handler
from tests.sessions import in_session
from tests.testapp.models import Effect

from .bad_python import leaked
from .kinds import OTHER

TOPIC = "bad.neighbour"
QUESTIONS = {
    "sqlite": ("PRAGMA cache_size", "PRAGMA query_only", "SELECT count(*) FROM temp.sqlite_master"),
    "postgresql": (
        "SELECT current_setting('application_name')",
        "SELECT current_setting('work_mem')",
        "SELECT current_setting('transaction_read_only')",
        "SELECT to_regclass('pg_temp.bad_temporary') IS NULL",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    ),
    "mysql": (
        "SELECT @bad",
        "SELECT @@sql_mode",
        "SELECT @@tx_read_only",
        "SELECT COALESCE(IS_USED_LOCK('bad') = CONNECTION_ID(), 0)",
    ),
}


@handler(TOPIC)
def be_good(message: Message) -> None:
    left = remains(message.using)
    assert left == message.payload, f"{left} was left behind, not {message.payload}"
    Effect.objects.using(OTHER).create(name="good", message_id=message.id)
    Effect.objects.using(message.using).create(name="good", message_id=message.id)


@cache
def nothing_left(using: str) -> dict[str, Any]:
    """How a new thread with new sessions finds things."""
    return in_session(remains, using).result(timeout=30)


def remains(using: str) -> dict[str, Any]:
    """Everything that a message could leave to the next; JSON, so that it can go into a payload."""
    elsewhere = connections[OTHER]
    return {
        "session": [_ask(using, question) for question in QUESTIONS[connections[using].vendor]],
        "elsewhere": [_ask(OTHER, question) for question in QUESTIONS["sqlite"]],
        "transaction elsewhere": [elsewhere.in_atomic_block, elsewhere.get_autocommit()],
        "shared": connections[using].allow_thread_sharing,
        "context": leaked.get(),
        "language": translation.get_language(),
        "zone": timezone.get_current_timezone_name(),
        "precision": decimal.getcontext().prec,
    }


def _ask(using: str, question: str) -> Any:
    with connections[using].cursor() as cursor:
        cursor.execute(question)
        return cursor.fetchone()[0]
