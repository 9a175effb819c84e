"""What a process makes of its own leases after it has slept through their end."""

from __future__ import annotations

import time

import pytest

from reliable_messaging.message import Message
from reliable_messaging.workers.flights import Flights
from tests.factories import MessageFactory

LEASE = 10.0


@pytest.fixture
def flights() -> Flights:
    return Flights(wake=lambda: None, stopping=lambda: False, lease=LEASE)


def take_off(flights: Flights, *, age: float) -> Message:
    message: Message = MessageFactory()
    flights.take_off([message], leased_at=time.monotonic() - age)
    return message


def test_no_unfenced_handler_starts_on_an_ended_lease(flights: Flights) -> None:
    """A non-atomic one: another worker may be at it. An atomic one may, because its ack is fenced; and
    so may both while the lease lasts."""
    ended, lasting = take_off(flights, age=LEASE + 1), take_off(flights, age=LEASE - 1)
    assert flights.boarding(ended, unfenced=True) is None
    assert flights.boarding(ended, unfenced=False) is not None
    assert flights.boarding(lasting, unfenced=True) is not None


def test_a_renewed_lease_may_be_started_on(flights: Flights) -> None:
    """Nobody had taken it meanwhile."""
    message = take_off(flights, age=LEASE + 1)
    flights.renewed([message], leased_at=time.monotonic())
    assert flights.boarding(message, unfenced=True) is not None


def test_a_lost_claim_is_not_renewed(flights: Flights) -> None:
    """Else its handler, which nobody can stop, would go on as if it had a lease."""
    lost, kept = take_off(flights, age=0), take_off(flights, age=0)
    for message in (lost, kept):
        flights.boarding(message, unfenced=True)
    flights.renewed([lost, kept], leased_at=time.monotonic() - LEASE - 1)
    flights.lose([lost])
    flights.renewed([lost, kept], leased_at=time.monotonic())
    assert flights.has_overdue(LEASE)
    flights.land([lost], [])
    assert not flights.has_overdue(LEASE)
