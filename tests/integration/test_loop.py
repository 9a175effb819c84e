"""The loop around the turns: what it does when the database is away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connections
from django.test import override_settings

from reliable_messaging.workers.process import RETRY_SECONDS, loop


class Waiter:
    """Notes how long it was to wait, and does not."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)


def waits(using: str, turn: Callable[[], float], *, until: Callable[[], bool]) -> list[float]:
    waiter: Any = Waiter()
    loop(turn, until=until, waiter=waiter, alias=using)
    return waiter.waits  # type: ignore[no-any-return]


def test_while_the_database_is_away_the_pauses_grow(using: str) -> None:
    """No busy loop, no end of the process, and quick again after the first success."""
    errors: list[Exception | None] = [OperationalError(), InterfaceError()] * 4
    errors += [None, OperationalError(), None]
    steps = iter(errors)
    taken: list[int] = []

    def turn() -> float:
        taken.append(1)
        error = next(steps)
        if error is not None:
            raise error
        return 0.0

    pauses = waits(using, turn, until=lambda: len(taken) == len(errors))
    assert pauses == [*RETRY_SECONDS, *[RETRY_SECONDS[-1]] * 3, RETRY_SECONDS[0]]


def test_an_error_of_our_own_is_not_taken_for_an_outage(using: str) -> None:
    """It would be repeated for ever; the process ends with a traceback, and is started again."""

    def turn() -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        waits(using, turn, until=lambda: False)


def test_a_connection_that_broke_between_two_turns_is_replaced(using: str) -> None:
    """Django would keep it: each turn after that would fail in the same way."""
    answers: list[object] = []
    taken: list[int] = []

    def turn() -> float:
        taken.append(1)
        if len(taken) == 2:
            connections[using].connection.close()
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT 1")
            answers.append(cursor.fetchone())
        return 0.0

    waits(using, turn, until=lambda: len(taken) == 5)
    assert len(answers) == 4


def test_queries_of_turns_are_not_kept_under_debug(using: str) -> None:
    """Django logs every query then: an idle worker would grow with each look."""
    taken: list[int] = []

    def turn() -> float:
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT 1")
        taken.append(len(connections[using].queries_log))
        return 0.0

    with override_settings(DEBUG=True):
        waits(using, turn, until=lambda: len(taken) == 30)
    assert max(taken) < 15, "more than a new connection and one turn ask"


def test_told_to_stop_it_does_not_wait(using: str) -> None:
    """The last turn asks for a minute; nobody sleeps through a stop."""
    told: list[int] = []

    def turn() -> float:
        told.append(1)
        return 60.0

    assert waits(using, turn, until=lambda: bool(told)) == []
