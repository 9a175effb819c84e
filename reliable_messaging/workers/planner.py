"""Jobs, as a scheduler looks after them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from django.db import Error, connections

from .. import clock, logs
from ..conf import get_settings
from ..db_errors import is_passing
from ..jobs import endings, planning
from .connections import is_gone

REST_OF_UNUSABLE = 60.0
"""Seconds until a job that could not be planned is tried again."""


@dataclass(slots=True, kw_only=True)
class Planner:
    alias: str
    _resting: dict[str, float] = field(default_factory=dict)
    """Jobs that could not be planned here, and until when they are left alone."""
    _catch_up_at: float = field(default_factory=clock.monotonic)

    def look(self) -> planning.JobsSeen:
        return planning.look(self.alias, leave_out=self._left_out())

    def plan(self, seen: planning.JobsSeen) -> bool:
        """Whether anything has changed."""
        planned = self._plan() if seen.is_due else 0
        let_go = planning.let_go(self.alias) if seen.holds else 0
        return bool(planned or let_go or self._catch_up())

    def _plan(self) -> int:
        """One that cannot be written must not hold up all others for ever: they are tried one by one then."""
        try:
            planned = planning.plan_due(self.alias, leave_out=self._left_out())
        except Error as exc:
            self._raise_if_passing(exc)
            logs.event(logging.ERROR, "jobs not planned", database=self.alias, error=str(exc))
            return self._plan_one_by_one()
        self._rest(planned.unusable)
        return planned.jobs

    def _plan_one_by_one(self) -> int:
        jobs = 0
        for name in planning.due_names(self.alias, leave_out=self._left_out()):
            try:
                planned = planning.plan_due(self.alias, only=name)
            except Error as exc:
                self._raise_if_passing(exc)
                self._rest({name: exc})
            else:
                self._rest(planned.unusable)
                jobs += planned.jobs
        return jobs

    def _raise_if_passing(self, exc: Error) -> None:
        if is_passing(exc) or is_gone(connections[self.alias]):
            raise exc

    def _rest(self, unusable: Mapping[str, Exception]) -> None:
        for name, exc in unusable.items():
            self._resting[name] = clock.monotonic() + REST_OF_UNUSABLE
            logs.event(logging.ERROR, "job unusable", job=name, error=str(exc), retry_in=REST_OF_UNUSABLE)

    def _left_out(self) -> list[str]:
        now = clock.monotonic()
        self._resting = {name: until for name, until in self._resting.items() if until > now}
        return list(self._resting)

    def _catch_up(self) -> int:
        if clock.monotonic() < self._catch_up_at:
            return 0
        ended = endings.catch_up(self.alias)
        if ended:
            logs.event(logging.WARNING, "runs ended unseen", count=ended, database=self.alias)
        else:
            self._catch_up_at = clock.monotonic() + get_settings().CLEANUP_INTERVAL.total_seconds()
        return ended
