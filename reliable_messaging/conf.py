"""The one setting, RELIABLE_MESSAGING: read late, typed, cached until it changes."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from typing import Any

from django.conf import settings as django_settings
from django.core.signals import setting_changed

from .exceptions import SettingsError

SETTING_NAME = "RELIABLE_MESSAGING"

LONGEST_DURATION = timedelta(days=365 * 100)
"""No database can hold a time past the year 9999."""

MOST_ATTEMPTS = 1_000_000

SHORTEST_LEASE = timedelta(seconds=1)
"""Renewal comes at a third of the lease; below this, one slow commit loses it."""


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Durations may be given in seconds or as timedelta; they are timedelta here."""

    ENABLED: bool = True
    SERVICE_NAME: str = ""
    REQUIRE_ATOMIC: bool = False
    MAX_PAYLOAD_BYTES: int = 1024 * 1024

    LEASE: timedelta = _seconds(60)
    BATCH_SIZE: int = 50
    CHUNK_SIZE: int = 10
    POLL_MIN: timedelta = _seconds(0.1)
    POLL_MAX: timedelta = _seconds(5)
    FAST_PATH: bool = True
    WAKEUP: bool = True
    WAKEUP_DATABASE: str = ""
    HANDLER_TIMEOUT: timedelta = timedelta(minutes=15)

    MAX_ATTEMPTS: int = field(default=5, metadata={"maximum": MOST_ATTEMPTS})
    MAX_CRASHES: int = field(default=5, metadata={"maximum": MOST_ATTEMPTS})
    BACKOFF_BASE: timedelta = _seconds(2)
    BACKOFF_MAX: timedelta = timedelta(minutes=5)
    BACKOFF_JITTER: timedelta = field(default=_seconds(0.5), metadata={"minimum": timedelta(0)})
    TRANSIENT_WINDOW: timedelta = timedelta(hours=24)

    MESSAGE_TTL: timedelta | None = field(default=None, metadata={"optional": True})
    OUTBOX_RETENTION: timedelta | None = field(
        default=timedelta(days=7), metadata={"optional": True, "minimum": timedelta(0)}
    )
    TIMER_RETENTION: timedelta | None = field(
        default=timedelta(days=7), metadata={"optional": True, "minimum": timedelta(0)}
    )
    RUN_RETENTION: timedelta | None = field(default=timedelta(days=30), metadata={"optional": True})
    DEAD_RETENTION: timedelta | None = field(default=None, metadata={"optional": True})
    CLEANUP_INTERVAL: timedelta = timedelta(minutes=5)


KNOWN_NAMES = frozenset(f.name for f in fields(Settings))


@cache
def get_settings() -> Settings:
    """The settings in force. Unknown names are reported by a system check, not here."""
    given = given_settings()
    values: dict[str, Any] = {}
    for f in fields(Settings):
        if f.name in given:
            values[f.name] = _typed(f.name, given[f.name], f)
    return Settings(**values)


def given_settings() -> dict[str, Any]:
    given = getattr(django_settings, SETTING_NAME, {})
    if not isinstance(given, dict):
        raise SettingsError(f"{SETTING_NAME} must be a dict, not {type(given).__name__}.")
    return given


def problems() -> list[str]:
    """Everything that is wrong with the setting, one sentence each."""
    try:
        given = given_settings()
    except SettingsError as exc:
        return [str(exc)]
    found = [f"{name!r} is not a setting of {SETTING_NAME}." for name in given if name not in KNOWN_NAMES]
    for f in fields(Settings):
        if f.name in given:
            try:
                _typed(f.name, given[f.name], f)
            except SettingsError as exc:
                found.append(str(exc))
    return found


def _typed(name: str, value: Any, f: Any) -> Any:
    if value is None and f.metadata.get("optional"):
        return None
    default = f.default
    if isinstance(default, timedelta) or f.metadata.get("optional"):
        return _duration(name, value, f.metadata.get("minimum"), optional=f.metadata.get("optional", False))
    if isinstance(default, bool):
        return _instance(name, value, bool, "True or False")
    if isinstance(default, int):
        number: int = _instance(name, value, int, "a whole number")
        if isinstance(value, bool) or number < 1:
            raise SettingsError(
                f"{SETTING_NAME}[{name!r}] must be a whole number of at least 1, not {value!r}."
            )
        maximum = f.metadata.get("maximum", number)
        if number > maximum:
            raise SettingsError(f"{SETTING_NAME}[{name!r}] must be {maximum:,} at most, not {value!r}.")
        return number
    return _instance(name, value, str, "a text")


def _instance(name: str, value: Any, kind: type, words: str) -> Any:
    if not isinstance(value, kind):
        raise SettingsError(f"{SETTING_NAME}[{name!r}] must be {words}, not {value!r}.")
    return value


def _duration(name: str, value: Any, minimum: timedelta | None, *, optional: bool) -> timedelta:
    given = value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            value = timedelta(seconds=value)
        except (OverflowError, ValueError):
            pass
    if not isinstance(value, timedelta):
        raise SettingsError(f"{SETTING_NAME}[{name!r}] must be seconds or a timedelta, not {given!r}.")
    if value < timedelta(0) or (minimum is None and value == timedelta(0)):
        bound = "positive" if minimum is None else "zero or more"
        raise SettingsError(f"{SETTING_NAME}[{name!r}] must be {bound}, not {given!r}.")
    if value > LONGEST_DURATION:
        never_ends = " None is for ever." if optional else ""
        raise SettingsError(
            f"{SETTING_NAME}[{name!r}] must be a hundred years at most, not {given!r}.{never_ends}"
        )
    return value


def _forget(*, setting: str, **_: Any) -> None:
    if setting == SETTING_NAME:
        get_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="reliable_messaging.conf")
