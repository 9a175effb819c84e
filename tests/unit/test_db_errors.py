"""What an error of the database says: whether the same may work later."""

from __future__ import annotations

import pytest
from django.db import DataError, IntegrityError, InterfaceError, InternalError, OperationalError

from reliable_messaging.db_errors import is_passing
from reliable_messaging.dispatch.classify import classify
from reliable_messaging.report import FailureKind


class DriverError(Exception):
    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate


def raised(error: Exception, state: str) -> Exception:
    error.__cause__ = DriverError(state)
    return error


PASSING = {
    "no connection": OperationalError("connection refused"),
    "closed": InterfaceError("connection already closed"),
    "lock timeout": OperationalError(1205, "Lock wait timeout exceeded"),
    "read-only": raised(InternalError("cannot execute INSERT in a read-only transaction"), "25006"),
    "idle in transaction": raised(InternalError("terminating connection"), "25P03"),
}
LASTING = {
    "character set": OperationalError(1366, "Incorrect string value: '\\xF0\\x9F' for column"),
    "duplicate": IntegrityError("duplicate key"),
    "out of range": DataError("integer out of range"),
    "aborted transaction": raised(InternalError("current transaction is aborted"), "25P02"),
    "of another kind": ValueError("1205"),
}


@pytest.mark.parametrize("name", PASSING)
def test_what_may_work_later_is_the_infrastructures_trouble(name: str) -> None:
    """It is charged to the time window, and a settlement that meets it is tried again."""
    assert is_passing(PASSING[name])
    assert classify(PASSING[name]) == FailureKind.TRANSIENT


@pytest.mark.parametrize("name", LASTING)
def test_what_never_will_is_a_failure_of_its_own(name: str) -> None:
    """Retried for a day, or for ever, it would only be in the way."""
    assert not is_passing(LASTING[name])
    assert classify(LASTING[name]) == FailureKind.OWN
