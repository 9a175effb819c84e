"""Running a transaction again, and when not to."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from reliable_messaging.workqueue.deadlock import TRIES, retrying_deadlocks


class Victim(Exception):
    sqlstate = "40P01"


class VictimOfPsycopg2(Exception):
    pgcode = "40P01"


def deadlock(cause: type[Exception] = Victim) -> OperationalError:
    error = OperationalError("deadlock detected")
    error.__cause__ = cause()
    return error


class Work:
    """Raises these errors in turn, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_the_victim_of_a_deadlock_is_run_again() -> None:
    """In the words of PostgreSQL, by either driver, and of InnoDB."""
    work = Work(deadlock(), deadlock(VictimOfPsycopg2), OperationalError(1213, "Deadlock found"))
    assert (retrying_deadlocks(work), work.calls) == ("done", 4)


def test_another_error_is_raised_at_once() -> None:
    """After a lost connection nobody knows what was committed: to run it again might do it twice."""
    work = Work(OperationalError(2013, "Lost connection to server during query"))
    with pytest.raises(OperationalError, match="Lost connection"):
        retrying_deadlocks(work)
    assert work.calls == 1


def test_deadlocks_without_end_are_given_up() -> None:
    """The caller hears of it: a loop with its pauses is the one to try again."""
    work = Work(*(deadlock() for _ in range(100)))
    with pytest.raises(OperationalError, match="deadlock"):
        retrying_deadlocks(work)
    assert work.calls == TRIES
