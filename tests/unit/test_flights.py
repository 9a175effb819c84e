"""What a process has claimed and not settled: who may start, what is renewed, what is given back."""

from __future__ import annotations

import gc
import time
import weakref

import pytest

from reliable_messaging.message import Message
from reliable_messaging.workers.flights import Flights
from reliable_messaging.workqueue import Ack, Release
from tests.factories import MessageFactory


@pytest.fixture
def flights() -> Flights:
    return Flights(wake=lambda: None, stopping=lambda: False)


def take_off(flights: Flights, *, earlier: Message | None = None) -> Message:
    """A claimed message, or a second claim of an earlier one."""
    message: Message = MessageFactory() if earlier is None else MessageFactory(id=earlier.id)
    flights.take_off([message], leased_at=time.monotonic())
    return message


def test_a_lost_message_does_not_start(flights: Flights) -> None:
    """Someone else runs it by now."""
    message = take_off(flights)
    flights.lose([message])
    assert flights.boarding(message, unfenced=True) is None


def test_a_message_that_was_given_back_does_not_start(flights: Flights) -> None:
    """It waits to be settled: run now, it would run while another worker has it."""
    message = take_off(flights)
    flights.turn_back_unstarted()
    assert flights.boarding(message, unfenced=True) is None


def test_a_settled_message_does_not_start(flights: Flights) -> None:
    """Nothing is known of it any more."""
    message = take_off(flights)
    flights.land([message], [])
    assert flights.boarding(message, unfenced=True) is None


def test_only_the_first_settlement_of_a_message_is_kept(flights: Flights) -> None:
    """Its handler comes back after it was given up: both written, one would be lost, or undo the other."""
    message = take_off(flights)
    first, second = Release(item=message), Ack(item=message)
    flights.land([message], [first])
    flights.land([message], [second])
    assert flights.landed() == [first]
    assert flights.active == 0


def test_what_is_settled_of_an_earlier_claim_leaves_the_later_one(flights: Flights) -> None:
    """The same process claimed it again meanwhile: that claim must go on being renewed."""
    stale = take_off(flights)
    settlement = Ack(item=stale)
    flights.land([stale], [settlement])
    fresh = take_off(flights, earlier=stale)
    flights.settled([settlement])
    assert flights.messages() == [fresh]
    assert (flights.landed(), flights.active) == ([], 1)


@pytest.mark.parametrize("settled_at_once", [True, False])
def test_what_is_through_is_not_kept_alive(flights: Flights, settled_at_once: bool) -> None:
    """Not by a circle that only a search for garbage finds: a payload may be large, and a project may have
    switched the search off."""
    gc.disable()
    try:
        message = take_off(flights)
        boarded = flights.boarding(message, unfenced=True)
        assert boarded is message
        flight = weakref.ref(message.stop_requested)
        settlements = [] if settled_at_once else [Ack(item=message)]
        flights.land([message], settlements)
        flights.settled(settlements)
        assert not message.should_stop
        del message, boarded, settlements
        assert flight() is None
    finally:
        gc.enable()


def test_news_of_an_earlier_claim_is_no_news_of_the_later_one(flights: Flights) -> None:
    """Neither its loss nor its renewal."""
    stale = take_off(flights)
    fresh: Message = MessageFactory(id=stale.id)
    flights.take_off([fresh], leased_at=time.monotonic() - 60)
    flights.lose([stale])
    flights.renewed([stale], leased_at=time.monotonic())
    assert flights.boarding(fresh, unfenced=True) is not None
    assert flights.has_overdue(30)


def test_what_is_lost_is_not_renewed(flights: Flights) -> None:
    """It would be reported as lost at every beat."""
    lost, kept = take_off(flights), take_off(flights)
    flights.lose([lost])
    assert flights.messages() == [kept]


def test_what_has_run_or_is_lost_is_not_given_back(flights: Flights) -> None:
    """At the end of the grace: released, what has run would run again."""
    running, landed, lost = (take_off(flights) for _ in range(3))
    flights.land([landed], [Ack(item=landed)])
    flights.lose([lost])
    assert flights.unlanded() == [running]


def test_only_what_no_handler_has_begun_turns_back(flights: Flights) -> None:
    """What runs may finish; what has run is no longer ours to release. What is lost is forgotten: a
    process that is to be replaced would wait for it for ever."""
    unstarted, running, landed, lost = (take_off(flights) for _ in range(4))
    flights.boarding(running, unfenced=True)
    flights.land([landed], [Ack(item=landed)])
    flights.lose([lost])
    flights.turn_back_unstarted()
    assert flights.landed() == [Ack(item=landed), Release(item=unstarted)]
    assert flights.active == 1
    assert len(flights) == 3


def test_a_settlement_that_lands_meanwhile_is_not_taken_for_settled(flights: Flights) -> None:
    """Between the transaction and its bookkeeping, other threads go on landing."""
    first, second = take_off(flights), take_off(flights)
    flights.land([first], [Ack(item=first)])
    settlements = flights.landed()
    flights.land([second], [Ack(item=second)])
    flights.settled(settlements)
    assert flights.landed() == [Ack(item=second)]
    assert flights.messages() == [second]
