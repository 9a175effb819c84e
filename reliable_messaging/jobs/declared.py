"""Jobs that the code declares, and how they come into the table: ``@periodic`` on a handler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from django.db import router

from ..exceptions import InvalidJob, InvalidMessage, RegistrationError
from ..models import Job, Misfire, Overlap
from ..registry import Handler, registry
from ..workqueue.deadlock import retrying_in_transaction
from . import storing
from .definition import JobDefinition, as_json, build_values, columns_of

F = TypeVar("F", bound=Callable[..., Any])

UNKNOWN = "(the handler's)"
"""Stands for a topic, or for a name, until the handler is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    function: Callable[..., Any]
    definition: JobDefinition
    """Its name and topic may be UNKNOWN: a handler may be registered below or above."""
    using: str | None

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.function.__module__}.{getattr(self.function, '__qualname__', repr(self.function))}"

    @property
    def alias(self) -> str:
        return self.using or router.db_for_write(Job)

    def resolve(self) -> JobDefinition:
        topic = self.definition.topic
        if topic == UNKNOWN:
            topic = self._only_topic()
        name = topic if self.definition.name == UNKNOWN else self.definition.name
        return replace(self.definition, topic=topic, name=name)

    def _only_topic(self) -> str:
        found = sorted({h.topic for h in registry if _is_of(h, self.function)})
        if len(found) == 1:
            return str(found[0])
        if not found:
            raise RegistrationError(
                f"@periodic is above {self.place}, which handles no topic: put @handler(...) there too, or "
                "say topic=."
            )
        raise RegistrationError(
            f"@periodic is above {self.place}, which handles {', '.join(found)}: say topic=."
        )


_declarations: dict[tuple[str, object, str], Declaration] = {}


def periodic(
    cron: str,
    *,
    name: str | None = None,
    topic: str | None = None,
    payload: Any = None,
    timezone: str = "UTC",
    enabled: bool = True,
    misfire: str = Misfire.ONCE,
    misfire_grace: float | timedelta = timedelta(minutes=1),
    overlap: str = Overlap.ALLOW,
    max_attempts: int | None = None,
    queue: str | None = None,
    priority: int = 0,
    expires_in: float | timedelta | None = None,
    headers: Mapping[str, Any] | None = None,
    using: str | None = None,
) -> Callable[[F], F]:
    """Declare, above a handler, that a job sends its message at each due time of the cron expression.

    The job is created or updated by ``manage.py sync_jobs``, and when a scheduler starts. Its name is the
    topic, unless you give one. The other arguments are those of ``jobs.create_or_update``.
    """
    if callable(cron):
        raise RegistrationError('The cron expression is missing: write @periodic("*/5 * * * *").')
    definition = JobDefinition(
        name=UNKNOWN if name is None else name,
        topic=UNKNOWN if topic is None else topic,
        cron=cron,
        payload=payload,
        timezone=timezone,
        enabled=enabled,
        misfire=misfire,
        misfire_grace=misfire_grace,
        overlap=overlap,
        max_attempts=max_attempts,
        queue=queue,
        priority=priority,
        expires_in=expires_in,
        headers=headers,
    )
    try:
        build_values(definition)
    except (InvalidJob, InvalidMessage) as exc:
        raise RegistrationError(f"@periodic({cron!r}): {exc}") from exc

    def declare(function: F) -> F:
        declaration = Declaration(function=function, definition=definition, using=using)
        # A module that is imported a second time declares the same once more.
        _declarations[declaration.place, _line_of(function), repr(definition)] = declaration
        return function

    return declare


def declarations() -> list[Declaration]:
    return list(_declarations.values())


def forget(function: Callable[..., Any]) -> None:
    """For tests."""
    for key in [key for key, declared in _declarations.items() if declared.function is function]:
        del _declarations[key]


def declared(alias: str) -> Iterator[JobDefinition]:
    """The jobs of this database."""
    return (declaration.resolve() for declaration in declarations() if declaration.alias == alias)


def declared_names(alias: str) -> set[str]:
    """The same, as far as they can be told."""
    names = set()
    for declaration in declarations():
        with suppress(RegistrationError):  # a system check tells of it
            if declaration.alias == alias:
                names.add(declaration.resolve().name)
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """What a synchronisation did, by the names of the jobs."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    kept: dict[str, list[str]] = field(default_factory=dict)
    """What somebody has changed by hand, and the code says otherwise: which columns."""
    pruned: list[str] = field(default_factory=list)
    """Disabled, because the code has them no longer."""

    def note(self, name: str, change: _Change) -> None:
        if change.created:
            self.created.append(name)
        if change.updated:
            self.updated.append(name)
        if change.kept:
            self.kept[name] = change.kept


def sync(*, prune: bool = False, overwrite: bool = False, using: str | None = None) -> Synced:
    """Make the table say what the code says. What somebody has changed by hand since stays as it is, unless
    ``overwrite``; what the code has no longer stays too, unless ``prune``."""
    alias = router.db_for_write(Job) if using is None else using
    wanted = {definition.name: build_values(definition) for definition in declared(alias)}
    synced = Synced()
    for name in sorted(wanted):  # in this order everywhere, so that two of us cannot deadlock
        work = partial(_sync, alias, wanted[name], overwrite=overwrite)
        synced.note(name, retrying_in_transaction(alias, work))
    if prune:
        synced.pruned.extend(retrying_in_transaction(alias, lambda: _prune(alias, set(wanted))))
    return synced


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What became of one job."""

    created: bool = False
    updated: bool = False
    kept: list[str] = field(default_factory=list)


def _sync(alias: str, values: dict[str, Any], *, overwrite: bool) -> _Change:
    said = as_json(values)
    job: Job | None = Job._base_manager.using(alias).filter(pk=values["name"]).first()
    if job is None:
        storing.store(alias, {**values, "declared": said})
        return _Change(created=True)
    if _is_as_said(job, said):
        return _Change()  # nearly always, and somebody may have locked it for long
    job = storing.locked(alias, values["name"]) or job
    before = job.declared or {}
    is_now = as_json(columns_of(job, said))
    differs = [column for column in said if is_now[column] != said[column]]
    # What is no longer as the code said before, somebody has changed.
    by_hand = [] if overwrite else [c for c in differs if is_now[c] != before.get(c, _NOTHING)]
    changes = {column: values[column] for column in differs if column not in by_hand}
    storing.change(job, {**changes, "declared": said})
    return _Change(updated=bool(changes), kept=by_hand)


def _is_as_said(job: Job, said: Mapping[str, Any]) -> bool:
    if storing.is_off_course(job):
        return False
    return bool(job.declared == said == as_json(columns_of(job, said)))


def _prune(alias: str, wanted: set[str]) -> list[str]:
    gone = Job._base_manager.using(alias).filter(declared__isnull=False, enabled=True).exclude(pk__in=wanted)
    pruned = []
    for name in gone.order_by("pk").values_list("pk", flat=True):
        job = storing.locked(alias, name)
        if job is not None:
            # As if the code had said so: when it has the job again, it is enabled again.
            storing.change(job, {"enabled": False, "declared": {**(job.declared or {}), "enabled": False}})
            pruned.append(name)
    return pruned


_NOTHING: Any = object()


def _is_of(handler: Handler, function: Callable[..., Any]) -> bool:
    """Also when a decorator between the two has wrapped it."""
    if handler.is_for_dead_letters:
        return False
    return inspect.unwrap(handler.function) is inspect.unwrap(function)


def _line_of(function: Any) -> object:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_firstlineno if code is not None else id(function)
