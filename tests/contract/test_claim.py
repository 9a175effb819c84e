"""Claiming: exclusive, in order, never early."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from reliable_messaging import clock
from reliable_messaging.models import Status
from reliable_messaging.workqueue import Lane, Mark, QueueSelection
from tests.contract.work_items import Bench
from tests.sessions import together


def test_a_claim_takes_a_due_item_under_a_lease(bench: Bench) -> None:
    """A claimed row is claimed, with a token, an attempt counted and a lease by the database's clock."""
    made = bench.make()
    item = bench.claim_one(lease=60)
    row = bench.row(item)
    assert item.id == made.id
    assert row.status == Status.CLAIMED
    assert row.owner_token == item.owner_token is not None
    assert (row.attempts, item.attempts) == (1, 1)
    assert row.leased_until - row.last_attempt_at == timedelta(seconds=60)
    assert abs(row.last_attempt_at - timezone.now()) < timedelta(minutes=5)


def test_nothing_is_claimed_twice(bench: Bench) -> None:
    """While a claim holds, a second one finds nothing."""
    bench.make()
    assert len(bench.queue.claim(limit=10)) == 1
    assert bench.queue.claim(limit=10) == []


def test_concurrent_claims_share_the_items(bench: Bench) -> None:
    """Eight real sessions that claim at once never get the same item, and miss none."""
    made = {bench.make().id for _ in range(200)}

    def claim_until_empty() -> list[object]:
        mine: list[object] = []
        misses = 0
        while misses < 3:
            got = bench.queue.claim(limit=7)
            mine += [item.id for item in got]
            misses = 0 if got else misses + 1
        return mine

    shares = together([claim_until_empty] * 8)
    claimed = [pk for share in shares for pk in share]
    assert len(claimed) == len(set(claimed))
    assert set(claimed) == made


def test_each_claim_has_a_fresh_token(bench: Bench) -> None:
    """Two claims never share the fence."""
    bench.make(), bench.make()
    assert bench.claim_one().owner_token != bench.claim_one().owner_token


def test_nothing_is_claimed_early(bench: Bench) -> None:
    """An item due in two hours is not claimable now, nor in 119 minutes, but in 121."""
    bench.make(due_at=timezone.now() + timedelta(hours=2))
    assert bench.queue.claim() == []
    with clock.travel(timedelta(minutes=119)):
        assert bench.queue.claim() == []
    with clock.travel(timedelta(minutes=121)):
        assert len(bench.queue.claim()) == 1


@pytest.mark.parametrize("crashes", [0, 1])
def test_what_is_due_does_not_bring_along_what_is_not(bench: Bench, crashes: int) -> None:
    """A claim larger than what is due in the lane leaves the delayed ones, suspects too."""
    due = bench.make(crashes=crashes)
    bench.make(crashes=crashes, due_at=timezone.now() + timedelta(hours=2))
    claim = bench.queue.claim_suspect if crashes else lambda: bench.queue.claim(limit=5)
    assert [item.id for item in claim()] == [due.id]
    assert claim() == []


def taken() -> dict[str, object]:
    return {"status": Status.CLAIMED, "owner_token": uuid4(), "leased_until": timezone.now()}


SINCE_THE_LOOK = {
    "taken": lambda bench: taken(),
    "put off": lambda bench: {"due_at": timezone.now() + timedelta(hours=1)},
    "expired": lambda bench: {"expires_at": timezone.now() - timedelta(seconds=5)},
    "a suspect": lambda bench: {"crashes": 1},
    "not claimable": lambda bench: bench.kind.unclaimable,
    "another queue": lambda bench: {"queue": "mail"},
    "another band": lambda bench: {"priority": -1},
}


@pytest.mark.parametrize("what", SINCE_THE_LOOK)
def test_a_claim_compares_again_what_the_look_saw(bench: Bench, what: str) -> None:
    """Between the look and the claim a row may have been taken, put off, expired or become a suspect."""
    row = bench.make()
    lanes = bench.queue.look(["default"]).lanes
    assert lanes
    bench.rows().filter(pk=row.pk).update(**SINCE_THE_LOOK[what](bench))
    assert bench.queue.exchange([], lanes=lanes, limit=5).claimed == []


def test_a_claim_begins_behind_its_mark(bench: Bench) -> None:
    """By due time, and by id among those that fell due together: what is before it is not even looked at."""
    now = timezone.now() - timedelta(minutes=1)
    earlier = bench.make(due_at=now - timedelta(seconds=1))
    twins = sorted((bench.make(due_at=now) for _ in range(3)), key=lambda row: row.pk)
    later = bench.make(due_at=now + timedelta(seconds=1))
    lane = Lane("default", 0, Mark(now, twins[0].pk))
    claimed = bench.queue.exchange([], lanes=[lane], limit=10).claimed
    assert [item.id for item in claimed] == [twins[1].pk, twins[2].pk, later.pk]
    (lane,) = bench.queue.look(["default"]).lanes
    claimed = bench.queue.exchange([], lanes=[lane], limit=10).claimed
    assert [item.id for item in claimed] == [earlier.pk, twins[0].pk]


def test_a_claim_of_one_lane_keeps_its_limit_and_its_order(bench: Bench) -> None:
    """Whatever order the database answers in."""
    now = timezone.now() - timedelta(minutes=1)
    made = [bench.make(due_at=now - timedelta(seconds=n)) for n in (3, 9, 1, 7, 5)]
    wanted = [row.pk for row in sorted(made, key=lambda row: row.due_at)][:4]
    claimed = bench.queue.exchange([], lanes=[Lane("default", 0)], limit=4).claimed
    assert [item.id for item in claimed] == wanted


def test_every_path_writes_and_reads_the_same(bench: Bench) -> None:
    """One claimed and acknowledged by an exchange of one lane, one by verbs inside a transaction, which
    takes the portable path on every database: all columns and all values are the same, times aside."""
    past = {
        "failures": 2,
        "first_failed_at": timezone.now(),
        "last_error": "it 'failed' \\ %s",
        "attempts": 3,
    }
    headers = (
        {"headers": {"trace": ["é", None, 1.5]}} if hasattr(bench.make(queue="other"), "headers") else {}
    )
    rows = [bench.make(**past, **headers) for _ in range(2)]
    (one,) = bench.queue.exchange([], lanes=[Lane("default", 0)], limit=1).claimed
    with transaction.atomic(using=bench.using):
        (other,) = bench.queue.exchange([], lanes=[Lane("default", 0)], limit=1).claimed
    assert _alike(*(bench.rows().filter(pk=row.pk).values().get() for row in rows))
    assert _alike(*({name: getattr(item, name) for name in type(item).__slots__} for item in (one, other)))
    assert bench.queue.ack([one]) == []
    with transaction.atomic(using=bench.using):
        assert bench.queue.ack([other]) == []
    assert _alike(*(bench.rows().filter(pk=row.pk).values().get() for row in rows))


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """The same but for what no two rows share. Times are there in both or in neither."""
    own = {"id", "owner_token", "payload", "body"}

    def shown(values: dict[str, Any]) -> dict[str, Any]:
        return {
            name: (type(value), value.utcoffset()) if isinstance(value, datetime) else value
            for name, value in values.items()
            if name not in own
        }

    assert shown(one) == shown(other)
    return True


def test_a_claim_takes_no_more_than_its_limit(bench: Bench) -> None:
    """Also over several bands."""
    for priority in (1, 1, 1, 0, 0, 0):
        bench.make(priority=priority)
    assert [item.priority for item in bench.queue.claim(limit=4)] == [1, 1, 1, 0]


def test_the_order_is_by_band_then_due_time(bench: Bench) -> None:
    """High before normal before low; within a band the longest due first."""
    now = timezone.now()
    wanted = [
        bench.make(priority=1, due_at=now - timedelta(minutes=1)).id,
        bench.make(priority=0, due_at=now - timedelta(minutes=5)).id,
        bench.make(priority=0, due_at=now - timedelta(minutes=4)).id,
        bench.make(priority=-1, due_at=now - timedelta(minutes=9)).id,
    ]
    assert [bench.claim_one().id for _ in wanted] == wanted


def test_one_claim_takes_several_bands_in_order(bench: Bench) -> None:
    """A claim that is larger than a band goes on with the next."""
    low, high = bench.make(priority=-1), bench.make(priority=1)
    assert [item.id for item in bench.queue.claim(limit=5)] == [high.id, low.id]


def test_only_the_named_queues_are_served(bench: Bench) -> None:
    """``queues=`` limits a claim; without it every queue is found."""
    mail, default = bench.make(queue="mail"), bench.make()
    assert [item.id for item in bench.queue.claim(limit=5, queues=["mail"])] == [mail.id]
    assert [item.id for item in bench.queue.claim(limit=5)] == [default.id]


def test_queues_that_differ_in_case_or_a_space_are_different(bench: Bench) -> None:
    """'Mail', 'mail' and 'mail ' are three queues, on every database's collation."""
    for name in ("mail", "Mail", "mail "):
        bench.make(queue=name)
    assert set(bench.queue.discover_queues()) == {"mail", "Mail", "mail "}
    (item,) = bench.queue.claim(limit=5, queues=["Mail"])
    assert item.queue == "Mail"


def test_suspects_are_left_to_a_claim_of_their_own(bench: Bench) -> None:
    """A batch never contains an item whose worker died over it; those come one at a time."""
    innocent, suspect, other = bench.make(), bench.make(crashes=1), bench.make(crashes=2)
    assert [item.id for item in bench.queue.claim_suspect()] == [suspect.id]
    assert [item.id for item in bench.queue.claim(limit=10)] == [innocent.id]
    assert [item.id for item in bench.queue.claim_suspect()] == [other.id]
    assert bench.queue.claim_suspect() == []


def test_suspects_of_other_queues_are_left_alone(bench: Bench) -> None:
    """Neither seen nor claimed by a worker that does not serve their queue."""
    bench.make(crashes=1), bench.make(queue="mail", crashes=1)
    for selection in (QueueSelection(only=("mail",)), QueueSelection(exclude=("default",))):
        assert bench.queue.look(["mail"], selection).suspect_due
        (suspect,) = bench.queue.claim_suspect(selection=selection)
        assert suspect.queue == "mail"
        assert bench.queue.claim_suspect(selection=selection) == []
        assert not bench.queue.look(["mail"], selection).suspect_due
        bench.queue.release([suspect])


def test_an_excluded_queue_is_excluded_by_name_too(bench: Bench) -> None:
    """Named and excluded at once, or found and excluded: it is left alone."""
    bench.make(queue="a"), bench.make(queue="b")
    assert bench.queue.discover_queues(QueueSelection(only=("a", "b"), exclude=("b",))) == ("a",)
    assert bench.queue.discover_queues(QueueSelection(exclude=("b",))) == ("a",)


def test_an_expired_item_is_not_claimed(bench: Bench) -> None:
    """Claims leave what has expired to maintenance, suspects too."""
    past = timezone.now() - timedelta(seconds=5)
    bench.make(expires_at=past), bench.make(expires_at=past, crashes=1)
    assert bench.queue.claim(limit=5) == bench.queue.claim_suspect() == []


def test_a_claim_whose_answer_was_lost_can_be_asked_for(bench: Bench) -> None:
    """The token is chosen beforehand: after an unanswered COMMIT the rows are found by it."""
    bench.make()
    token = uuid4()
    lanes = bench.queue.look(["default"]).lanes
    (claimed,) = bench.queue.exchange([], lanes=lanes, limit=5, owner_token=token).claimed
    (found,) = bench.queue.held_by(token)
    assert (found.id, found.owner_token, found.attempts) == (claimed.id, token, 1)
    assert bench.queue.held_by(uuid4()) == []


def test_a_half_claim_is_refused_by_the_database(bench: Bench) -> None:
    """Claimed without a token, or a token without a claim, cannot be written."""
    row = bench.make()
    for broken in ({"status": Status.CLAIMED}, {"owner_token": uuid4()}, {"leased_until": timezone.now()}):
        with pytest.raises(IntegrityError), transaction.atomic(using=bench.using):
            bench.rows().filter(pk=row.pk).update(**broken)


def test_the_look_says_what_is_due_and_when_to_look_again(bench: Bench) -> None:
    """Due lanes by urgency, the next due time, ended leases, passed expiries, due suspects."""
    now = timezone.now()
    bench.make(priority=-1), bench.make(priority=1)
    bench.make(due_at=now + timedelta(seconds=100))
    seen = bench.queue.look(["default"])
    assert [lane.priority for lane in seen.lanes] == [1, -1]
    assert seen.next_in is not None
    assert timedelta(seconds=60) < seen.next_in < timedelta(seconds=101)
    assert not (seen.suspect_due)
    assert not (seen.lease_ended)
    assert not (seen.expiry_passed)
    bench.make(crashes=1), bench.make(expires_at=now - timedelta(seconds=1))
    bench.queue.claim(limit=1, lease=0)
    seen = bench.queue.look(["default"])
    assert (seen.suspect_due, seen.lease_ended, seen.expiry_passed) == (True, True, True)


def test_what_cannot_be_claimed_is_not_in_sight(bench: Bench) -> None:
    """Else a worker would see it, find nothing to claim, and look again without a pause."""
    past = timezone.now() - timedelta(seconds=5)
    bench.make(expires_at=past), bench.make(expires_at=past, crashes=1)
    bench.make(**bench.kind.unclaimable)
    seen = bench.queue.look(["default"])
    assert (seen.lanes, seen.suspect_due) == ((), False)
    bench.make(crashes=1)
    seen = bench.queue.look(["default"])
    assert (seen.lanes, seen.suspect_due) == ((), True)


def test_an_empty_table_has_nothing_in_sight(bench: Bench) -> None:
    """Nothing due and nothing to wait for."""
    seen = bench.queue.look(["default"])
    assert (seen.lanes, seen.next_in) == ((), None)
