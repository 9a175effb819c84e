"""Named leases: one holder at a time by the database's clock, who knows in time when it is one no more."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, transaction
from django.utils import timezone

from reliable_messaging import LeaseLost, LeaseUnavailable, clock, lease, leases, with_lease
from reliable_messaging.exceptions import (
    InvalidLease,
    InvalidName,
    LeaseInTransaction,
    RegistrationError,
)
from reliable_messaging.leases import HeldLease, keeper, table
from reliable_messaging.leases.block import LeaseBlock
from reliable_messaging.leases.terms import SAFE_SHARE, Terms
from reliable_messaging.models import Lease
from reliable_messaging.registry import Handler, registry
from tests.sessions import in_session, together
from tests.workers import eventually

NAME = "nightly-report"


@pytest.fixture(autouse=True)
def nothing_is_kept() -> Iterator[None]:
    """Whatever a test has left is not renewed while the next one runs."""
    yield
    for kept in keeper._keepers.values():
        for held in kept._held:
            held.lost.set()
            kept.drop(held)


def row(using: str, name: str = NAME) -> Lease:
    return Lease._base_manager.using(using).get(pk=name)


@contextmanager
def silent_database(monkeypatch: pytest.MonkeyPatch, *, name: str = NAME) -> Iterator[threading.Event]:
    """Renewals of that lease get no answer until the end of the block."""
    asked, answer, real = threading.Event(), threading.Event(), table.renew

    def hang(alias: str, asked_for: str, *args: Any, **kwargs: Any) -> Any:
        if asked_for != name:
            return real(alias, asked_for, *args, **kwargs)
        asked.set()
        answer.wait(30)
        raise DatabaseError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(table, "renew", hang)
        try:
            yield asked
        finally:
            answer.set()


# Taking and giving back


def test_one_holds_it_and_the_others_are_told_who(using: str) -> None:
    """The second is refused with the holder's name and the end of its lease, by the database's clock."""
    with lease(NAME, duration=60, owner="first", using=using) as held:
        assert (held.name, held.owner, held.token) == (NAME, "first", 1)
        assert timedelta(seconds=50) < held.expires_at - held.server_time <= timedelta(seconds=60)
        with pytest.raises(LeaseUnavailable, match=f"'{NAME}' is held by first; it ends in") as refused:
            lease(NAME, using=using).__enter__()
        assert refused.value.owner == "first"
        assert refused.value.expires_at == held.expires_at
        assert timedelta(seconds=50) < refused.value.ends_in <= timedelta(seconds=60)


def test_the_end_of_the_block_gives_it_back(using: str) -> None:
    """At once, also when the block ends by an error."""
    with pytest.raises(ZeroDivisionError), lease(NAME, using=using):
        1 / 0
    assert row(using).expires_at is None
    with lease(NAME, using=using) as held:
        assert held.token == 2


def test_each_holder_has_a_greater_token(using: str) -> None:
    """Whether the one before gave it back, let it end or was robbed of it."""
    with lease(NAME, using=using) as first:
        pass
    second = leases.acquire(NAME, duration=1, using=using)
    with clock.travel(timedelta(seconds=2)):
        third = leases.acquire(NAME, using=using)
        assert leases.take_away(NAME, using=using)
        fourth = leases.acquire(NAME, using=using)
    assert second is not None
    assert third is not None
    assert fourth is not None
    tokens = [first.token, second.token, third.token, fourth.token]
    assert tokens == [1, 2, 3, 4]


def test_names_are_compared_byte_for_byte(using: str) -> None:
    """'a', 'A' and 'a ' are three leases."""
    held = [leases.acquire(name, using=using) for name in ("a", "A", "a ")]
    assert None not in held


def test_what_is_held_cannot_be_acquired(using: str) -> None:
    """``acquire`` says None; ``holder`` says who has it."""
    assert leases.holder(NAME, using=using) is None
    held = leases.acquire(NAME, owner="me", using=using)
    assert held is not None
    assert leases.acquire(NAME, using=using) is None
    holder = leases.holder(NAME, using=using)
    assert holder is not None
    assert (holder.owner, holder.token) == ("me", held.token)
    held.release()
    assert leases.holder(NAME, using=using) is None


def test_an_ended_lease_is_free(using: str) -> None:
    """By the database's clock, to the moment; its holder can neither renew nor release it then."""
    held = leases.acquire(NAME, duration=60, using=using)
    assert held is not None
    with clock.travel(timedelta(seconds=59)):
        assert leases.acquire(NAME, using=using) is None
    with clock.travel(timedelta(seconds=61)):
        with pytest.raises(LeaseLost):
            held.renew()
        assert held.lost.is_set()
        with pytest.raises(LeaseLost):
            held.release()
        assert leases.acquire(NAME, using=using) is not None


def test_of_many_at_once_one_gets_it(using: str) -> None:
    """Also when the name is new, and all of them store its row."""
    for name in ("new", "new", "another"):
        got = [held for held in together([lambda name=name: leases.acquire(name, using=using)] * 8) if held]
        assert len(got) == 1
        got[0].release()


# Keeping it


def test_it_renews_itself(using: str) -> None:
    """A holder keeps it for much longer than its duration, and sees its new end."""
    with lease(NAME, duration=0.6, using=using) as held:
        first = held.expires_at
        eventually(lambda: held.expires_at > first + timedelta(seconds=1.2))
        assert leases.acquire(NAME, using=using) is None
        assert not held.lost.is_set()


def test_one_thread_renews_all_of_them(using: str) -> None:
    """However many this process holds, there is one thread for a database."""
    before = threading.active_count()
    held = [leases.acquire(f"n-{number}", duration=0.6, using=using) for number in range(20)]
    firsts = [one.expires_at for one in held if one]
    assert len(firsts) == 20
    eventually(lambda: all(one.expires_at > first for one, first in zip(held, firsts, strict=True) if one))
    assert threading.active_count() <= before + 1
    for one in held:
        assert one is not None
        one.release()


def test_nothing_is_left_open_when_nothing_is_held(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session for renewals ends with the last lease, long before its thread: nobody can drop a database
    that has one."""
    monkeypatch.setattr(keeper, "LINGER", 60.0)
    with lease(NAME, duration=0.6, using=using) as held:
        first = held.expires_at
        eventually(lambda: held.expires_at > first)
        kept = keeper.keeper_of(using)
        assert kept.has_session
    eventually(lambda: not kept.has_session, seconds=10)


def test_renewals_come_at_the_share_that_was_asked_for(using: str) -> None:
    """Up to a tenth sooner, each a little different, or all holders would renew together."""
    early = []
    for _ in range(20):
        with lease(NAME, duration=1000, renew_at=0.5, using=using) as held:
            began = held.lost.ends_at - 1000 * SAFE_SHARE
            early.append(round(began + 500 - held.renew_due, 6))
    assert all(0 <= seconds <= 50 for seconds in early)
    assert len(set(early)) > 10


def test_it_can_be_renewed_now(using: str) -> None:
    """The answer tells the new end and the database's time."""
    with lease(NAME, duration=60, using=using) as held:
        first = held.times
        time.sleep(0.01)
        times = held.renew()
        assert times == held.times
        assert times.server_time > first.server_time
        assert times.expires_at > first.expires_at


def test_a_wrong_wall_clock_changes_nothing(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is an hour off holds and loses leases as any other."""
    for wrong in (timedelta(hours=1), timedelta(hours=-1)):
        monkeypatch.setattr(timezone, "now", lambda wrong=wrong: clock.utcnow() + wrong)
        with lease(NAME, duration=0.6, using=using) as held:
            first = held.expires_at
            assert leases.acquire(NAME, using=using) is None
            eventually(lambda first=first, held=held: held.expires_at > first)


# Losing it


def test_a_robbed_holder_learns_of_it(using: str) -> None:
    """At its next renewal; the end of its block says so."""
    with pytest.raises(LeaseLost, match="was lost: somebody else may hold it"):
        with lease(NAME, duration=0.6, using=using) as held:
            assert leases.take_away(NAME, using=using)
            assert held.lost.wait(10)
            with pytest.raises(LeaseLost):
                held.raise_if_lost()
            with pytest.raises(LeaseLost):
                held.renew()


def test_a_loss_does_not_hide_the_blocks_own_error(using: str) -> None:
    """It says more; the loss is in the log."""
    with pytest.raises(ZeroDivisionError), lease(NAME, using=using):
        leases.take_away(NAME, using=using)
        1 / 0


def test_a_stale_holder_renews_nothing(using: str) -> None:
    """Not even where somebody else has it by now: the token is compared."""
    old = leases.acquire(NAME, using=using)
    assert old is not None
    leases.take_away(NAME, using=using)
    new = leases.acquire(NAME, using=using)
    assert new is not None
    with pytest.raises(LeaseLost):
        old.renew()
    assert row(using).expires_at == new.expires_at


def test_who_lost_it_does_not_release_it_for_the_next(using: str) -> None:
    """The end of an old block leaves the new holder alone."""
    old = leases.acquire(NAME, using=using)
    assert old is not None
    leases.take_away(NAME, using=using)
    new = leases.acquire(NAME, using=using)
    with pytest.raises(LeaseLost):
        old.release()
    assert new is not None
    assert new.renew()


def test_a_holder_without_its_database_learns_in_time(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The renewal hangs, without an error. Before the lease ends by the database's clock it is lost."""
    with silent_database(monkeypatch) as asked:
        held = leases.acquire(NAME, duration=1, using=using)
        assert held is not None
        assert asked.wait(10)
        assert held.lost.wait(10)
        assert clock.read(using) < held.expires_at
        with pytest.raises(LeaseLost):
            held.raise_if_lost()
    eventually(lambda: NAME not in repr(threading.enumerate()))


def test_an_error_is_tried_again(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as there is time."""
    real, failed = table.renew, []

    def fail_twice(*args: Any, **kwargs: Any) -> Any:
        if len(failed) < 2:
            failed.append(1)
            raise DatabaseError("not now")
        return real(*args, **kwargs)

    monkeypatch.setattr(table, "renew", fail_twice)
    with lease(NAME, duration=2, using=using) as held:
        first = held.expires_at
        eventually(lambda: held.expires_at > first)
        assert len(failed) == 2


def test_an_answer_that_comes_too_late_changes_nothing(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its holder was told that the lease is lost it stays lost, whatever the database says then."""
    real = table.renew
    with lease(NAME, duration=60, using=using) as held:

        def slow(*args: Any, **kwargs: Any) -> Any:
            answer = real(*args, **kwargs)
            held.lost.ends_at = clock.monotonic()
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(table, "renew", slow)
            with pytest.raises(LeaseLost):
                held.renew()
        with pytest.raises(LeaseLost):
            held.renew()
        held.lost.ends_at = clock.monotonic() + 60  # for the end of the block
        held.lost.clear()


def test_a_new_lease_does_not_wait_for_a_hung_thread(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that swallows packets may keep a renewal for ever: the next lease gets a thread of its own."""
    monkeypatch.setattr(keeper, "PATIENCE", timedelta(seconds=0.1))
    with silent_database(monkeypatch, name="hangs") as asked:
        hangs = leases.acquire("hangs", duration=0.6, using=using)
        assert hangs is not None
        assert asked.wait(10)
        assert hangs.lost.wait(10)
        with lease(NAME, duration=0.6, using=using) as held:
            first = held.expires_at
            eventually(lambda: held.expires_at > first, seconds=10)


def test_lost_can_be_waited_for_with_a_time_out(using: str) -> None:
    """As for any Event."""
    with lease(NAME, using=using) as held:
        assert held.lost.wait(0.01) is False
        assert held.lost.wait(0) is False


# Waiting for it


def test_who_waits_gets_it_when_it_is_given_back(using: str) -> None:
    """And no later than its wait."""
    held = leases.acquire(NAME, using=using)
    assert held is not None
    waiting = in_session(lambda: leases.acquire(NAME, wait=20, using=using))
    time.sleep(0.2)
    held.release()
    got = waiting.result(timeout=20)
    assert got is not None
    assert got.token == held.token + 1


def test_who_waits_in_vain_is_refused(using: str) -> None:
    """After the time that it gave."""
    began = time.monotonic()
    with lease(NAME, using=using), pytest.raises(LeaseUnavailable):
        lease(NAME, wait=0.3, using=using).__enter__()
    assert time.monotonic() - began >= 0.3


# Refusals


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"duration": 0}, "duration must be positive, not"),
        ({"duration": -1}, "duration cannot be negative"),
        ({"duration": 0.01}, "duration must be at least 0.1 s"),
        ({"duration": "60"}, "duration must be seconds or a timedelta, not '60'"),
        ({"duration": True}, "duration must be seconds or a timedelta"),
        ({"duration": float("nan")}, "duration is out of range"),
        ({"duration": 1e99}, "duration is out of range"),
        ({"renew_at": 0}, "more than 0 and 0.9 at most, not 0"),
        ({"renew_at": 1}, "more than 0 and 0.9 at most, not 1"),
        ({"renew_at": "half"}, "renew_at must be a number"),
        ({"wait": -1}, "wait cannot be negative"),
        ({"wait": None}, "wait must be seconds or a timedelta"),
    ],
)
def test_wrong_terms_are_refused(options: dict[str, Any], words: str) -> None:
    """Before the database is asked, in words that say what to change."""
    for ask in (lease, leases.acquire, with_lease):
        with pytest.raises(InvalidLease, match=words):
            ask(NAME, **options)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", 7])
def test_a_wrong_name_is_refused(name: Any) -> None:
    """Empty, too long, with a line break, no text."""
    with pytest.raises(InvalidName):
        lease(name)


def test_not_inside_a_transaction(using: str) -> None:
    """Nobody would see it before the commit, and a rollback would hand out its token again."""
    with transaction.atomic(using=using):
        with pytest.raises(LeaseInTransaction, match="inside a transaction"):
            lease(NAME, using=using).__enter__()
    with lease(NAME, using=using) as held, transaction.atomic(using=using):
        with pytest.raises(LeaseInTransaction):
            held.renew()
        with pytest.raises(LeaseInTransaction):
            held.release()


def test_not_released_twice(using: str) -> None:
    """The second time it is not held any more."""
    held = leases.acquire(NAME, using=using)
    assert held is not None
    held.release()
    with pytest.raises(LeaseLost, match="cannot be released: it has been released"):
        held.release()
    with pytest.raises(LeaseLost, match="cannot be renewed: it has been released"):
        held.renew()


def test_a_forked_child_does_not_give_it_back(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the value of its parent, and not the lease."""
    held = leases.acquire(NAME, using=using)
    assert held is not None
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: held._pid + 1)
        with pytest.raises(LeaseLost, match="belongs to the process"):
            held.release()
    held.release()


def test_a_lease_that_cannot_be_given_back_ends_by_itself(
    using: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The work of the block is done; that the database is away then is no reason to do it again."""

    def fail(*args: Any) -> Any:
        raise DatabaseError("gone")

    monkeypatch.setattr(table, "release", fail)
    with caplog.at_level(logging.WARNING), lease(NAME, using=using):
        pass
    assert "lease not released" in caplog.text
    assert leases.holder(NAME, using=using) is not None


def test_a_lease_that_cannot_be_kept_is_not_taken(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread to renew it: it is free again at once, and the next one is kept as any other."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    keeper._keepers.pop(using, None)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            leases.acquire(NAME, using=using)
    assert leases.holder(NAME, using=using) is None
    with lease(NAME, duration=0.6, using=using) as held:
        first = held.expires_at
        eventually(lambda: held.expires_at > first)


def test_what_was_not_given_back_is_renewed_no_more(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller may have nobody to try again: then it ends by itself."""

    def fail(*args: Any) -> Any:
        raise DatabaseError("gone")

    held = leases.acquire(NAME, duration=0.6, using=using)
    assert held is not None
    with monkeypatch.context() as patch:
        patch.setattr(table, "release", fail)
        with pytest.raises(DatabaseError):
            held.release()
    eventually(lambda: leases.holder(NAME, using=using) is None, seconds=10)


def test_a_block_may_be_left_in_another_context(using: str) -> None:
    """As that of a generator which is closed elsewhere: the lease is given back."""
    block = lease(NAME, using=using)
    contextvars.copy_context().run(block.__enter__)
    block.__exit__(None, None, None)
    assert leases.holder(NAME, using=using) is None


def test_what_outlives_the_block_does_not_hold_it(using: str) -> None:
    """A task that began inside takes the lease anew, like anybody else."""

    @with_lease(NAME, using=using)
    def work() -> int:
        held = leases.current(NAME, using=using)
        assert held is not None
        return held.token

    with lease(NAME, using=using):
        inside = contextvars.copy_context()
        assert inside.copy().run(work) == 1
    assert inside.run(leases.current, NAME, using=using) is None
    assert inside.run(work) == 2


def test_who_waits_can_be_told_to_stop(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that stops does not wait for a lease: it tries once, and no more."""
    other = leases.acquire(NAME, using=using)
    assert other is not None
    tries, real = [], table.take

    def take(*args: Any, **kwargs: Any) -> Any:
        tries.append(1)
        return real(*args, **kwargs)

    monkeypatch.setattr(table, "take", take)
    terms = Terms.of(NAME, duration=60, renew_at=0.6, wait=1, owner=None, using=using)
    assert not isinstance(LeaseBlock(terms, give_up=lambda: True).acquire(), HeldLease)
    assert len(tries) == 1


# Async


def test_async_code_holds_leases_too(using: str) -> None:
    """The same block, and the same verbs with an a."""

    async def main() -> None:
        async with lease(NAME, using=using) as held:
            assert await leases.aacquire(NAME, using=using) is None
            assert (await held.arenew()).expires_at == held.expires_at
            assert leases.current(NAME, using=using) is held
        again = await leases.aacquire(NAME, wait=1, using=using)
        assert again is not None
        await again.arelease()

    async_to_sync(main)()


def test_a_cancelled_acquisition_keeps_nothing(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread goes on and gets the lease, and nobody is there to give it back: it is given back."""
    real = table.take

    def slow(*args: Any, **kwargs: Any) -> Any:
        answer = real(*args, **kwargs)
        time.sleep(0.3)
        return answer

    monkeypatch.setattr(table, "take", slow)

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(leases.aacquire(NAME, using=using), 0.1)

    async_to_sync(main)()
    assert leases.holder(NAME, using=using) is None
    assert not keeper.keeper_of(using)._held


# The decorator


def test_a_decorated_function_runs_alone(using: str) -> None:
    """It is refused while somebody else holds the lease, and can ask for its token."""

    @with_lease(NAME, using=using)
    def report(factor: int) -> int:
        held = leases.current(NAME, using=using)
        assert held is not None
        return held.token * factor

    assert report(10) == 10
    with in_another_session(using), pytest.raises(LeaseUnavailable):
        report(10)
    assert report(factor=10) == 30


@contextmanager
def in_another_session(using: str) -> Iterator[None]:
    held = in_session(lambda: leases.acquire(NAME, using=using)).result(timeout=10)
    assert held is not None
    yield
    held.release()


def test_decorated_functions_share_it(using: str) -> None:
    """One that is called by another of the same lease does not wait for itself."""

    @with_lease(NAME, using=using)
    def inner() -> int:
        found = leases.current(NAME, using=using)
        assert found is not None
        return found.token

    @with_lease(NAME, using=using)
    def outer() -> int:
        return inner()

    assert outer() == 1
    assert leases.current(NAME, using=using) is None
    assert leases.holder(NAME, using=using) is None


def test_a_decorated_coroutine_runs_alone(using: str) -> None:
    """Awaited under the lease."""

    @with_lease(NAME, using=using)
    async def report() -> int:
        found = leases.current(NAME, using=using)
        assert found is not None
        return found.token

    assert async_to_sync(report)() == 1


def test_a_generator_is_refused() -> None:
    """The lease would be over before its first line."""

    def lines() -> Iterator[int]:
        yield 1

    async def others() -> Any:
        yield 1

    for function in (lines, others):
        with pytest.raises(RegistrationError, match="Hold the lease inside it"):
            with_lease(NAME)(function)


def test_the_decorators_in_the_wrong_order_are_refused() -> None:
    """The worker would run the handler without the lease."""

    def work(message: Any) -> None: ...

    given = Handler(topic="test.lease", function=work)
    registry.add(given)
    try:
        with pytest.raises(RegistrationError, match="Put @handler above"):
            with_lease(NAME)(work)
    finally:
        registry.remove(given)
