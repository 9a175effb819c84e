"""The fault kit itself: a kit that sees nothing would make every scenario clean."""

from __future__ import annotations

from reliable_messaging.models import OutboxMessage
from tests.faults.oracle import Oracle, Verdict
from tests.workers import run_worker

CLEAN = Verdict(lost=0, duplicated=0, ghosts=0, wrongly_dead=0, indeterminate=0)


def settled(oracle: Oracle, **changes: int) -> None:
    """The verdict is clean but for these counts."""
    verdict = oracle.verdict()
    expected = dict.fromkeys(("lost", "duplicated", "ghosts", "wrongly_dead", "indeterminate"), 0)
    assert {name: getattr(verdict, name) for name in expected} == expected | changes


def test_an_honest_run_is_clean(using: str) -> None:
    """Both topics, rolled-back transactions in between: every count is 0, the result is clean."""
    oracle = Oracle(using)
    oracle.produce(30)
    oracle.produce(5, topic="fault.loose", together=1, rolled_back_every=1)
    assert not oracle.finished
    assert oracle.remaining() == 35
    run_worker(using)
    oracle.wait()
    assert oracle.verdict() == CLEAN
    result = oracle.result("honest", faults=3, recovery=0.5, allowed_recovery=2)
    assert (result.messages, result.faults, result.clean) == (35, 3, True)
    assert oracle.done() == 35
    result.check()


def message_of(using: str, number: int) -> OutboxMessage:
    return OutboxMessage._base_manager.using(using).get(payload__contains=f": {number}}}")
