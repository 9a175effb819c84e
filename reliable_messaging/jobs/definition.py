"""What a job is, checked before anything is written: the columns of its row that people choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import partial
from typing import Any

from .. import codec
from ..conf import get_settings
from ..cron import as_zone, normalise
from ..durations import as_duration
from ..exceptions import InvalidJob
from ..models import Job, Misfire, Overlap
from ..names import KEY_LENGTH, TOPIC_LENGTH, check_name, check_queue
from ..outgoing import as_lifetime, check_max_attempts, check_priority

SHORTEST_GRACE = timedelta(seconds=1)
"""Below this, a due time would be missed by whoever is a little slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefinition:
    """The arguments of ``create_or_update``, as a value."""

    name: str
    topic: str
    cron: str
    payload: Any = None
    timezone: str = "UTC"
    enabled: bool = True
    misfire: str = Misfire.ONCE
    misfire_grace: float | timedelta = timedelta(minutes=1)
    overlap: str = Overlap.ALLOW
    max_attempts: int | None = None
    queue: str | None = None
    priority: int = 0
    expires_in: float | timedelta | None = None
    headers: Mapping[str, Any] | None = None


def build_values(definition: JobDefinition) -> dict[str, Any]:
    """The row's columns, or an error that says what is wrong."""
    given = {field.name: getattr(definition, field.name) for field in fields(definition)}
    given["time_to_live"] = given.pop("expires_in")
    return {column: check(column, given[column]) for column in COLUMNS}


def check(column: str, value: Any) -> Any:
    """What somebody wants in one column, as it is stored; or an error that says what is wrong."""
    return _CHECKS[column](value)


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns as JSON can keep them, to be compared; without the name."""
    return {
        column: value.total_seconds() if isinstance(value, timedelta) else value
        for column, value in values.items()
        if column != "name"
    }


def columns_of(job: Job, names: Mapping[str, Any]) -> dict[str, Any]:
    return {column: getattr(job, column) for column in names}


def differing(job: Job) -> list[str]:
    """The columns that are not as the code last said; none of a job that the code does not know."""
    said = {column: value for column, value in (job.declared or {}).items() if column in COLUMNS}
    is_now = as_json(columns_of(job, said))
    return [column for column in said if is_now[column] != said[column]]


def _name(value: Any) -> str:
    return check_name(value, "job's name", max_length=KEY_LENGTH)


def _topic(value: Any) -> str:
    return check_name(value, "topic", max_length=TOPIC_LENGTH)


def _payload(value: Any) -> str:
    return codec.encode(value, max_bytes=get_settings().MAX_PAYLOAD_BYTES)


def _headers(value: Any) -> dict[str, Any]:
    return codec.encode_headers(value, max_bytes=get_settings().MAX_PAYLOAD_BYTES)


def _queue(value: Any) -> str:
    return "" if value is None else check_queue(value)


def _max_attempts(value: Any) -> int | None:
    return None if value is None else check_max_attempts(value)


def _time_to_live(value: Any) -> timedelta | None:
    return None if value is None else as_lifetime(value)


def _timezone(value: Any) -> str:
    return as_zone(value).key


def _grace(value: Any) -> timedelta:
    grace = as_duration(value, "misfire_grace", error=InvalidJob)
    if grace < SHORTEST_GRACE:
        raise InvalidJob(
            f"misfire_grace must be {SHORTEST_GRACE.total_seconds():g} s or more, not "
            f"{grace.total_seconds():g} s: a scheduler is never exactly in time."
        )
    return grace


def _choice(value: Any, choices: Any, what: str) -> str:
    if value not in choices.values:
        raise InvalidJob(f"{what} must be one of {', '.join(map(repr, choices.values))}, not {value!r}.")
    return str(choices(value).value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidJob(f"enabled must be True or False, not {value!r}.")
    return value


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "name": _name,
    "topic": _topic,
    "payload": _payload,
    "headers": _headers,
    "queue": _queue,
    "priority": check_priority,
    "max_attempts": _max_attempts,
    "time_to_live": _time_to_live,
    "cron": normalise,
    "timezone": _timezone,
    "enabled": _switch,
    "misfire": partial(_choice, choices=Misfire, what="misfire"),
    "misfire_grace": _grace,
    "overlap": partial(_choice, choices=Overlap, what="overlap"),
}
COLUMNS = tuple(_CHECKS)
"""What people choose of a job."""
