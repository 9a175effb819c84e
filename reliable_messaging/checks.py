"""System checks: what would go wrong later is said at start-up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as CheckWarning
from django.db import connections, router

from .conf import KNOWN_NAMES, SHORTEST_LEASE, Settings, get_settings, problems
from .exceptions import RegistrationError
from .jobs.declared import Declaration, declarations
from .models import OutboxMessage
from .registry import DEAD_LETTER_PREFIX, registry


@register()
def check_settings(**_: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = [
        Error(problem, hint=_hint(problem), id="reliable_messaging.E001") for problem in problems()
    ]
    if not django_settings.USE_TZ:
        found.append(
            Error(
                "reliable_messaging needs USE_TZ = True.",
                hint="Stored times are instants; without time zones they would mean two things.",
                id="reliable_messaging.E005",
            )
        )
    return found or _check_values(get_settings())


def _hint(problem: str) -> str | None:
    return f"Known names: {', '.join(sorted(KNOWN_NAMES))}." if "is not a setting" in problem else None


def _check_values(conf: Settings) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if conf.LEASE < SHORTEST_LEASE:
        found.append(
            Error(
                f"LEASE is {conf.LEASE.total_seconds():g} s, too short to be renewed in time.",
                hint=f"Use at least {SHORTEST_LEASE.total_seconds():g} second; 60 is the default.",
                id="reliable_messaging.E002",
            )
        )
    if conf.POLL_MIN > conf.POLL_MAX:
        found.append(Error("POLL_MIN is greater than POLL_MAX.", id="reliable_messaging.E006"))
    if conf.WAKEUP_DATABASE and conf.WAKEUP_DATABASE not in connections.settings:
        found.append(
            Error(
                f"WAKEUP_DATABASE names {conf.WAKEUP_DATABASE!r}, which is not in DATABASES.",
                hint=f"There are {', '.join(sorted(connections))}. It is an alias for a direct connection.",
                id="reliable_messaging.E008",
            )
        )
    return found


@register()
def check_handlers(**_: Any) -> list[CheckMessage]:
    return [
        Error(
            f"The topic {topic!r} has several handlers: {', '.join(h.name for h in handlers)}.",
            hint="Keep one handler for each topic.",
            id="reliable_messaging.E003",
        )
        for topic, handlers in registry.rivals()
    ]


@register()
def check_dead_letter_callbacks(**_: Any) -> list[CheckMessage]:
    return [
        CheckWarning(
            f"{callback.name} is @on_dead for the topic {topic!r}, which has no handler here.",
            hint="Is the topic spelled as in @handler? If its handler lives in another project, silence "
            "this warning.",
            id="reliable_messaging.W002",
        )
        for callback in registry
        if callback.is_for_dead_letters
        and registry.find(topic := callback.topic.removeprefix(DEAD_LETTER_PREFIX)) is None
    ]


@register()
def check_periodic(**_: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    places: dict[tuple[str, str], list[str]] = {}
    for declaration in declarations():
        try:
            name = declaration.resolve().name
        except RegistrationError as exc:
            found.append(Error(str(exc), id="reliable_messaging.E010"))
        else:
            places.setdefault((declaration.alias, name), []).append(declaration.place)
            found += _unhandled(declaration)
    return found + [
        Error(
            f"The job {name!r} is declared several times: {', '.join(sorted(where))}.",
            hint="Give each @periodic a name= of its own.",
            id="reliable_messaging.E011",
        )
        for (_, name), where in sorted(places.items())
        if len(where) > 1
    ]


def _unhandled(declaration: Declaration) -> list[CheckMessage]:
    topic = declaration.resolve().topic
    if registry.find(topic) is not None:
        return []
    return [
        CheckWarning(
            f"@periodic above {declaration.place} sends the topic {topic!r}, which has no handler here.",
            hint="Is the topic spelled as in @handler? If its handler lives in another project, silence "
            "this warning.",
            id="reliable_messaging.W003",
        )
    ]


@register()
def check_databases(**_: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for alias in connections:
        if router.allow_migrate_model(alias, OutboxMessage):
            found += _check_database(alias, connections[alias])
    return found


@register(Tags.database)
def check_database_servers(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """What only the server can tell: asked by ``migrate`` and ``check --database``."""
    found: list[CheckMessage] = []
    for alias in databases or ():
        if router.allow_migrate_model(alias, OutboxMessage):
            found += _check_server(alias, connections[alias])
    return found


def _check_server(alias: str, connection: Any) -> list[CheckMessage]:
    features = connection.features
    if features.has_select_for_update and not features.has_select_for_update_skip_locked:
        return [
            Error(
                f"The database {alias!r} has no SELECT … FOR UPDATE SKIP LOCKED.",
                hint="Upgrade it: MariaDB has it since 10.6, MySQL since 8.0.1.",
                id="reliable_messaging.E007",
            )
        ]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            if cursor.fetchone()[0] != "read committed":
                return [_isolation_error(alias)]
    return []


def _check_database(alias: str, connection: Any) -> list[CheckMessage]:
    options = connection.settings_dict.get("OPTIONS", {})
    zone = connection.settings_dict["TIME_ZONE"]
    if zone not in (None, "UTC") and not connection.features.supports_timezones:
        return [
            Error(
                f"The database {alias!r} has TIME_ZONE {zone!r}, and its times have no zone.",
                hint="Remove TIME_ZONE from DATABASES[...]: Django would write local times beside UTC, "
                "and messages would run hours too early or too late.",
                id="reliable_messaging.E009",
            )
        ]
    if connection.vendor == "sqlite" and options.get("transaction_mode") != "IMMEDIATE":
        return [
            CheckWarning(
                f"The SQLite database {alias!r} does not use transaction_mode IMMEDIATE.",
                hint="Set DATABASES[...]['OPTIONS']['transaction_mode'] = 'IMMEDIATE', or workers and "
                "requests will fail with 'database is locked'.",
                id="reliable_messaging.W001",
            )
        ]
    if not _reads_committed(connection, options):
        return [_isolation_error(alias)]
    return []


def _isolation_error(alias: str) -> Error:
    return Error(
        f"The database {alias!r} does not use the isolation level READ COMMITTED.",
        hint="Remove isolation_level from its OPTIONS (and default_transaction_isolation from its server's "
        "settings), or set it to read committed: at other levels an acknowledgement can fail for ever.",
        id="reliable_messaging.E004",
    )


def _reads_committed(connection: Any, options: dict[str, Any]) -> bool:
    if "isolation_level" not in options:
        return True  # Django's default on PostgreSQL, MariaDB and MySQL
    level = options["isolation_level"]
    if connection.vendor == "postgresql":
        return level in (None, 2) or getattr(level, "value", level) == 2  # psycopg's READ_COMMITTED
    return isinstance(level, str) and level.lower() == "read committed"
