"""Jobs: what they are, when they run, and what becomes of due times that were missed or overlap."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext, override_settings

from reliable_messaging import clock, jobs
from reliable_messaging.cron import Schedule
from reliable_messaging.exceptions import (
    InvalidCron,
    InvalidDueTime,
    InvalidJob,
    InvalidMessage,
    InvalidName,
    InvalidPayload,
    InvalidTimeZone,
    NotInTransaction,
    UnknownJob,
)
from reliable_messaging.jobs.due_times import MOST, due_times
from reliable_messaging.jobs.endings import LEFT_OUT
from reliable_messaging.jobs.planning import plan_due
from reliable_messaging.models import Job, JobRun, OutboxMessage, RunOutcome, Status
from reliable_messaging.testing import run_due
from tests.sessions import in_session, together
from tests.workers import handling

TOPIC = "test.job"
MINUTE = timedelta(minutes=1)


def make(using: str, name: str = "nightly", **options: Any) -> Job:
    return jobs.create_or_update(name, **{"topic": TOPIC, "cron": "* * * * *", "using": using, **options})


def rows(using: str, **condition: Any) -> Any:
    return JobRun._base_manager.using(using).filter(**condition)


def messages(using: str) -> Any:
    return OutboxMessage._base_manager.using(using)


def stored(using: str, name: str = "nightly") -> Job:
    return Job._base_manager.using(using).get(pk=name)


def move(using: str, to: datetime | timedelta, name: str = "nightly") -> datetime:
    """Its next run is then, or was so long ago."""
    at = clock.read(using) + to if isinstance(to, timedelta) else to
    Job._base_manager.using(using).filter(pk=name).update(next_run_at=at)
    return at


# Making them


def test_a_job_is_due_at_the_next_time_of_its_cron_expression(using: str) -> None:
    """Not at once, and by the database's clock."""
    job, now = make(using, cron=" */5  * * * * "), clock.read(using)
    assert job.cron == "*/5 * * * *"
    assert now < job.next_run_at <= now + 5 * MINUTE
    assert job.next_run_at.minute % 5 == job.next_run_at.second == job.next_run_at.microsecond == 0
    assert stored(using).next_run_at == job.next_run_at


def test_a_due_job_sends_its_message(using: str) -> None:
    """With its payload, and when it was due; the next due time follows."""
    job = make(using, payload={"report": 7}, headers={"origin": "cron"}, priority=1, queue="reports")
    due = job.next_run_at
    with clock.travel(due - clock.read(using)):
        assert jobs.fire_all_due(using=using) == 1
    (message,) = messages(using)
    assert (message.topic, message.payload, message.headers) == (TOPIC, '{"report":7}', {"origin": "cron"})
    assert (message.priority, message.queue, message.due_at, message.scheduled_for) == (
        1,
        "reports",
        due,
        due,
    )
    assert stored(using).next_run_at == due + MINUTE


def test_the_handler_is_told_when_the_run_was_due(using: str) -> None:
    """Also at a retry, whose due time is another one."""
    seen: list[Any] = []

    def fail_once(message: Any) -> None:
        seen.append(message.scheduled_for)
        if len(seen) == 1:
            raise ValueError("once")

    due = make(using).next_run_at
    with handling(TOPIC, fail_once):
        with clock.travel(due - clock.read(using)):
            run_due(using=using)
        jobs.disable("nightly", using=using)
        with clock.travel(timedelta(hours=1)):
            run_due(using=using)
    assert seen == [due, due]


def test_queue_and_attempts_are_the_handlers_unless_the_job_says_otherwise(using: str) -> None:
    """As they are when the run is made, and not when the job was."""
    make(using), make(using, "own", queue="own", max_attempts=3)
    with handling(TOPIC, lambda message: None, queue="reports", max_attempts=9):
        jobs.trigger("nightly", using=using), jobs.trigger("own", using=using)
        jobs.fire_all_due(using=using)
    assert set(messages(using).values_list("queue", "max_attempts")) == {("reports", 9), ("own", 3)}


def test_it_lives_and_dies_with_the_transaction(using: str) -> None:
    """A rollback makes no job, and triggers no run."""
    with transaction.atomic(using=using):
        make(using)
        jobs.trigger("nightly", using=using)
        transaction.set_rollback(True, using=using)
    assert not Job._base_manager.using(using).exists()
    assert not rows(using).exists()


def test_a_second_call_updates_it(using: str) -> None:
    """All of its columns; there is one job of a name."""
    make(using, payload=1)
    job = make(using, payload=2, misfire="all", overlap="skip", timezone="Europe/Berlin", max_attempts=3)
    assert stored(using).payload == "2"
    assert (job.misfire, job.overlap, job.timezone, job.max_attempts) == ("all", "skip", "Europe/Berlin", 3)


def test_an_update_keeps_what_is_due(using: str) -> None:
    """A due time that is about to be planned must not get lost."""
    make(using)
    due = move(using, -10 * timedelta(seconds=1))
    assert make(using, payload="other").next_run_at == due


@pytest.mark.parametrize(
    "change", [{"cron": "*/7 * * * *"}, {"timezone": "Asia/Kolkata", "cron": "0 0 * * *"}]
)
def test_another_schedule_starts_from_now(using: str, change: dict[str, str]) -> None:
    """What was due by the old one is not run by the new one."""
    make(using)
    move(using, -timedelta(hours=3))
    assert make(using, **change).next_run_at > clock.read(using)
    assert jobs.fire_all_due(using=using) == 0


def test_two_who_make_it_at_once_make_one(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one, who has seen no job there, updates what the first one has made. No error says so: it
    would break the caller's transaction."""
    real, seen = jobs.storing.locked, []

    def late(alias: str, name: str) -> Job | None:
        seen.append(name)
        return None if len(seen) == 1 else real(alias, name)

    make(using, payload=1)
    monkeypatch.setattr(jobs.storing, "locked", late)
    with transaction.atomic(using=using):
        make(using, payload=2)
    assert (stored(using).payload, len(seen)) == ("2", 2)


def test_many_who_make_the_same_jobs_in_transactions_do_not_deadlock(row_locking: str) -> None:
    """As web processes do that start together."""

    def work() -> None:
        with transaction.atomic(using=row_locking):
            for n in range(10):
                make(row_locking, f"job-{n}")

    together([work] * 5)
    assert Job._base_manager.using(row_locking).count() == 10


BAD = {
    "malformed": ({"cron": "61 * * * *"}, InvalidCron, "61"),
    "words": ({"cron": "every day"}, InvalidCron, "field"),
    "four fields": ({"cron": "* * * *"}, InvalidCron, "field"),
    "seven fields": ({"cron": "0 0 0 1 1 * 2030"}, InvalidCron, "field"),
    "never": ({"cron": "0 0 30 2 *"}, InvalidCron, "never"),
    "hashed": ({"cron": "H * * * *"}, InvalidCron, "H"),
    "random": ({"cron": "R * * * *"}, InvalidCron, "R"),
    "no text": ({"cron": 5}, InvalidCron, "text"),
    "zone": ({"timezone": "Europe/Atlantis"}, InvalidTimeZone, "Atlantis"),
    "path": ({"timezone": "../../etc/passwd"}, InvalidTimeZone, "time zone"),
    "misfire": ({"misfire": "never"}, InvalidJob, "'skip', 'once', 'all'"),
    "grace": ({"misfire_grace": 0}, InvalidJob, "1 s or more"),
    "negative": ({"misfire_grace": -5}, InvalidJob, "negative"),
    "overlap": ({"overlap": True}, InvalidJob, "'allow', 'skip', 'queue'"),
    "enabled": ({"enabled": "yes"}, InvalidJob, "True or False"),
    "attempts": ({"max_attempts": 0}, InvalidMessage, "max_attempts"),
    "priority": ({"priority": 7}, InvalidMessage, "priority"),
    "expiry": ({"expires_in": 0}, InvalidDueTime, "positive"),
    "payload": ({"payload": {1, 2}}, InvalidPayload, "JSON"),
    "topic": ({"topic": ""}, InvalidName, "topic is empty"),
    "queue": ({"queue": "a,b"}, InvalidName, "comma"),
    "name": ({"name": ""}, InvalidName, "job's name is empty"),
    "long": ({"name": "x" * 201}, InvalidName, "201"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_before_anything_is_written(using: str, case: str) -> None:
    """With words that say what to do; the transaction stays usable."""
    options, error, words = BAD[case]
    with transaction.atomic(using=using):
        with pytest.raises(error, match=words):
            make(using, **options)
        assert not Job._base_manager.using(using).exists()


# Switching, triggering, deleting


def test_a_disabled_job_does_not_run(using: str) -> None:
    """And has no next run."""
    make(using)
    assert jobs.disable("nightly", using=using).next_run_at is None
    with clock.travel(timedelta(hours=1)):
        assert jobs.fire_all_due(using=using) == 0


def test_enabling_never_fires_the_past(using: str) -> None:
    """However long it was disabled, and with misfire='all' too."""
    make(using, misfire="all")
    jobs.disable("nightly", using=using)
    with clock.travel(timedelta(days=2)):
        job = jobs.enable("nightly", using=using)
        assert jobs.fire_all_due(using=using) == 0
        assert job.next_run_at > clock.read(using)


def test_enabling_an_enabled_job_changes_nothing(using: str) -> None:
    """What is due just now is run."""
    make(using)
    due = move(using, -timedelta(seconds=5))
    assert jobs.enable("nightly", using=using).next_run_at == due


def test_a_trigger_leaves_the_schedule_as_it_is(using: str) -> None:
    """One run more, marked so, with another payload if that is given; of a disabled job too."""
    job = make(using, payload=1)
    first, second = jobs.trigger("nightly", using=using), jobs.trigger("nightly", payload=2, using=using)
    assert first.is_manual
    assert jobs.fire_all_due(using=using) == 2
    assert {m.pk: m.payload for m in messages(using)} == {first.pk: "1", second.pk: "2"}
    assert stored(using).next_run_at == job.next_run_at
    jobs.disable("nightly", using=using)
    jobs.trigger("nightly", payload=None, using=using)
    assert jobs.fire_all_due(using=using) == 1
    assert stored(using).next_run_at is None


def test_a_trigger_at_a_due_time_takes_no_run_away(using: str) -> None:
    """At the very same moment even: one by hand, and one by the schedule."""
    make(using)
    due = move(using, clock.read(using).replace(microsecond=0))
    run = jobs.trigger("nightly", using=using)
    rows(using).update(scheduled_for=due)
    assert jobs.fire_all_due(using=using) == 2
    assert {found.pk == run.pk for found in rows(using, scheduled_for=due)} == {True, False}


@pytest.mark.parametrize("verb", [jobs.trigger, jobs.enable, jobs.disable, jobs.next_times])
def test_an_unknown_name_is_refused(using: str, verb: Any) -> None:
    """Naming it."""
    with pytest.raises(UnknownJob, match="no job 'nihgtly'"):
        verb("nihgtly", using=using)


def test_the_next_times_are_told_in_the_jobs_zone(using: str) -> None:
    """Without changing anything."""
    job = make(using, cron="30 9 * * *", timezone="America/New_York")
    times = jobs.next_times("nightly", count=3, using=using)
    assert [(at.hour, at.minute, str(at.tzinfo)) for at in times] == [(9, 30, "America/New_York")] * 3
    assert times[0] == job.next_run_at
    assert times == sorted(set(times))
    with pytest.raises(InvalidJob, match="count"):
        jobs.next_times("nightly", count=0, using=using)


def test_deleting_takes_its_pending_runs_too(using: str) -> None:
    """Those that have a message, and those that are to get one. What runs goes on, and history stays."""
    make(using, overlap="queue")
    with handling(TOPIC, lambda message: None):
        done = jobs.trigger("nightly", using=using)
        run_due(using=using)
        running = jobs.trigger("nightly", using=using)
        jobs.fire_all_due(using=using)
        (item,) = outbox_queue(using).claim()
        held = jobs.trigger("nightly", using=using)
    make(using, "other")
    pending = jobs.trigger("other", using=using)
    jobs.fire_all_due(using=using)
    waiting = jobs.trigger("other", using=using)
    assert jobs.delete("nightly", using=using)
    assert jobs.delete("other", using=using)
    assert not jobs.delete("other", using=using)
    outcomes = dict(rows(using).values_list("pk", "outcome"))
    assert outcomes == {
        done.pk: RunOutcome.SUCCEEDED,
        running.pk: None,
        **{run.pk: RunOutcome.CANCELLED for run in (held, pending, waiting)},
    }
    outbox_queue(using).ack([item])
    assert rows(using).get(pk=running.pk).outcome == RunOutcome.SUCCEEDED
    assert jobs.fire_all_due(using=using) == 0
    assert messages(using).get(pk=pending.pk).status == Status.CANCELLED


def outbox_queue(using: str) -> Any:
    from reliable_messaging import outbox

    return outbox.queue.using(using)


def test_a_job_that_is_made_again_runs_again(using: str) -> None:
    """The history of the old one stands in nobody's way."""
    make(using)
    due = move(using, clock.read(using).replace(microsecond=0))
    jobs.fire_all_due(using=using)
    jobs.delete("nightly", using=using)
    make(using)
    move(using, due)
    assert jobs.fire_all_due(using=using) == 0  # this one has its run
    assert stored(using).next_run_at > due
    move(using, due - MINUTE)
    assert jobs.fire_all_due(using=using) >= 1


# Missed due times, as arithmetic

EVERY_MINUTE = Schedule.of("* * * * *", "UTC")
NOON = datetime(2026, 11, 19, 12, 0, tzinfo=timezone.utc)


def times(
    misfire: str, *, late: timedelta, grace: timedelta = MINUTE, schedule: Schedule = EVERY_MINUTE
) -> Any:
    found = due_times(schedule, first=NOON, now=NOON + late, misfire=misfire, grace=grace)
    return (
        [round((at - NOON) / MINUTE) for at in found.runs],
        round((found.next - NOON) / MINUTE),
        found.missed,
    )


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_what_is_late_by_no_more_than_the_grace_is_in_time(misfire: str) -> None:
    """Each due time has its run."""
    assert times(misfire, late=timedelta(seconds=3)) == ([0], 1, False)
    assert times(misfire, late=3 * MINUTE, grace=3 * MINUTE) == ([0, 1, 2, 3], 4, False)


def test_once_runs_once_for_all_that_were_missed() -> None:
    """For the latest one."""
    assert times("once", late=timedelta(hours=3, seconds=5)) == ([180], 181, True)


def test_skip_runs_only_what_is_still_in_time() -> None:
    """And nothing, if the latest one is past the grace too."""
    assert times("skip", late=timedelta(hours=3, seconds=5), grace=2 * MINUTE) == ([179, 180], 181, True)
    hourly = Schedule.of("0 * * * *", "UTC")
    assert times("skip", late=timedelta(hours=2, minutes=30), schedule=hourly) == ([], 180, True)


def test_all_runs_each_of_them_in_parts() -> None:
    """A day of seconds is not one transaction."""
    assert times("all", late=5 * MINUTE, grace=MINUTE) == ([0, 1, 2, 3, 4, 5], 6, False)
    found = due_times(
        Schedule.of("* * * * * *", "UTC"),
        first=NOON,
        now=NOON + timedelta(days=1),
        misfire="all",
        grace=MINUTE,
    )
    assert len(found.runs) == MOST
    assert found.next == NOON + timedelta(seconds=MOST)


@pytest.mark.parametrize(("misfire", "runs"), [("skip", 1), ("once", 1), ("all", 6)])
def test_missed_due_times_become_runs_as_the_job_says(using: str, misfire: str, runs: int) -> None:
    """After five minutes without a scheduler."""
    make(using, misfire=misfire)
    first = move(using, clock.read(using).replace(second=0, microsecond=0) - 5 * MINUTE)
    assert jobs.fire_all_due(using=using) == runs
    assert max(rows(using).values_list("scheduled_for", flat=True)) == first + 5 * MINUTE
    assert stored(using).next_run_at == first + 6 * MINUTE


def test_a_long_backlog_is_planned_in_parts(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of it twice, none left out."""
    monkeypatch.setattr("reliable_messaging.jobs.planning.MOST", 10)
    make(using, misfire="all")
    first = move(using, clock.read(using).replace(second=0, microsecond=0) - 24 * MINUTE)
    assert plan_due(using).jobs == 1
    assert rows(using).count() == 10
    while plan_due(using).jobs:
        pass
    found = sorted(rows(using).values_list("scheduled_for", flat=True))
    assert found[:25] == [first + n * MINUTE for n in range(25)]
    assert len(found) == len(set(found)) <= 26


# Overlapping runs


def test_allowed_runs_do_not_wait(using: str) -> None:
    """The default."""
    make(using, overlap="allow", misfire="all")
    move(using, -2.5 * MINUTE)
    assert jobs.fire_all_due(using=using) >= 3


def test_skipped_runs_are_told_of(using: str) -> None:
    """While one has not ended, due times are left out: cancelled runs, which say why."""
    make(using, overlap="skip", misfire="all")
    move(using, clock.read(using).replace(second=0, microsecond=0) - 2 * MINUTE)
    assert jobs.fire_all_due(using=using) == 1
    first, *others = rows(using).order_by("scheduled_for")
    assert first.outcome is None
    assert len(others) >= 2
    assert {(run.outcome, run.status, run.error) for run in others} == {
        (RunOutcome.CANCELLED, Status.CANCELLED, LEFT_OUT)
    }
    assert all(run.ended_at is not None for run in others)
    outbox_queue(using).ack(outbox_queue(using).claim(limit=5))
    move(using, clock.read(using).replace(microsecond=0))
    assert jobs.fire_all_due(using=using) == 1


def test_queued_runs_come_one_after_the_other(using: str) -> None:
    """In the order of their due times, each when the one before it has ended, however it did."""
    make(using, overlap="queue", misfire="all")
    first = move(using, clock.read(using).replace(second=0, microsecond=0) - 3 * MINUTE)
    queue = outbox_queue(using)
    seen = []
    for end in (queue.ack, lambda items: queue.fail(items, "broken"), queue.ack):
        assert jobs.fire_all_due(using=using) == 1
        assert jobs.fire_all_due(using=using) == 0
        (item,) = queue.claim(limit=5)
        queue.abandon([item], "not yet", delay=0)
        assert jobs.fire_all_due(using=using) == 0  # it has not ended, it is only to be retried
        (item,) = queue.claim(limit=5)
        seen.append(item.scheduled_for)
        end([item])
    assert seen == [first, first + MINUTE, first + 2 * MINUTE]


def test_a_trigger_waits_too(using: str) -> None:
    """Of a job whose runs must not overlap, with skip as with queue: who asks for a run gets one."""
    for overlap in ("skip", "queue"):
        make(using, overlap, overlap=overlap)
        jobs.trigger(overlap, using=using), jobs.trigger(overlap, using=using)
    assert jobs.fire_all_due(using=using) == 2
    outbox_queue(using).ack(outbox_queue(using).claim(limit=9))
    assert jobs.fire_all_due(using=using) == 2


def test_runs_wait_no_more_when_they_may_overlap(using: str) -> None:
    """The job was changed meanwhile."""
    make(using, overlap="queue")
    for _ in range(3):
        jobs.trigger("nightly", using=using)
    assert jobs.fire_all_due(using=using) == 1
    make(using, overlap="allow")
    assert jobs.fire_all_due(using=using) == 2


def test_two_schedulers_let_one_run_go(row_locking: str) -> None:
    """The job's row is locked meanwhile: the second one passes by."""
    make(row_locking, overlap="queue")
    jobs.trigger("nightly", using=row_locking), jobs.trigger("nightly", using=row_locking)
    with transaction.atomic(using=row_locking):
        assert jobs.planning.let_go(row_locking) == 1
        assert in_session(lambda: jobs.planning.let_go(row_locking)).result(timeout=20) == 0
    assert jobs.planning.let_go(row_locking) == 0
    assert rows(row_locking, held=False).count() == 1


def test_two_schedulers_plan_a_due_time_once(row_locking: str) -> None:
    """The second one skips the locked row, and finds nothing due after that."""
    make(row_locking)
    move(row_locking, -timedelta(seconds=1))
    with transaction.atomic(using=row_locking):
        assert plan_due(row_locking).jobs == 1
        assert in_session(lambda: plan_due(row_locking)).result(timeout=20).jobs == 0
    assert in_session(lambda: plan_due(row_locking)).result(timeout=20).jobs == 0
    assert rows(row_locking).count() == 1


def test_a_plan_of_another_schedule_holds_up_no_other(using: str) -> None:
    """A cron expression was changed by SQL, or a zone by an update of the time zones: what was planned is no
    due time any more."""
    make(using, "changed", cron="0 0 1 1 *"), make(using, "sound")
    move(using, -timedelta(hours=2), "changed"), move(using, -timedelta(seconds=1), "sound")
    assert jobs.fire_all_due(using=using) == 1
    assert stored(using, "changed").next_run_at > clock.read(using)


def test_its_messages_live_as_long_as_others(using: str) -> None:
    """MESSAGE_TTL, from the due time on, unless the job says otherwise."""
    make(using), make(using, "own", expires_in=60)
    with override_settings(RELIABLE_MESSAGING={"MESSAGE_TTL": 3600}):
        runs = [jobs.trigger("nightly", using=using), jobs.trigger("own", using=using)]
        jobs.fire_all_due(using=using)
    lives = [row.expires_at - row.due_at for row in (messages(using).get(pk=run.pk) for run in runs)]
    assert lives == [timedelta(hours=1), timedelta(minutes=1)]


@pytest.mark.parametrize(
    "rubbish", [{"cron": "x"}, {"timezone": "Mars/Phobos"}, {"max_attempts": 0}, {"queue": "a,b"}]
)
def test_a_job_that_cannot_be_read_holds_up_no_other(using: str, rubbish: dict[str, Any]) -> None:
    """Somebody has written rubbish past our checks, or this machine does not know its time zone."""
    make(using, "broken"), make(using, "sound")
    Job._base_manager.using(using).filter(pk="broken").update(**rubbish)
    move(using, -timedelta(seconds=5), "broken"), move(using, -timedelta(seconds=1), "sound")
    due = stored(using, "broken").next_run_at
    assert jobs.fire_all_due(using=using) == 1
    assert stored(using, "broken").next_run_at == due  # whoever can read it may run it
    assert stored(using, "sound").next_run_at > clock.read(using)


def test_the_tables_are_as_the_models_say(using: str) -> None:
    """A unique index among them: no migration is missing."""
    call_command("makemigrations", "reliable_messaging", check=True, dry_run=True, verbosity=0)


async def async_jobs(using: str) -> None:
    await jobs.acreate_or_update("async", topic=TOPIC, cron="* * * * *", using=using)
    await jobs.atrigger("async", payload=1, using=using)


def test_async_code_may_make_and_trigger_them(using: str) -> None:
    """In transactions of their own."""
    async_to_sync(async_jobs)(using)
    assert jobs.fire_all_due(using=using) == 1


@pytest.mark.parametrize("wrong", [None, timedelta(days=400)])
def test_a_job_that_is_off_course_comes_back(using: str, wrong: timedelta | None) -> None:
    """The database's clock was a year ahead for a moment, or something unforeseen. Whoever enables it, or
    makes it again with the same values, mends that."""
    for mend in (make, lambda alias: jobs.enable("nightly", using=alias)):
        make(using)
        lost = None if wrong is None else clock.read(using) + wrong
        Job._base_manager.using(using).filter(pk="nightly").update(next_run_at=lost)
        mend(using)
        assert stored(using).next_run_at <= clock.read(using) + MINUTE


def test_large_payloads_are_planned_in_parts(using: str) -> None:
    """On MariaDB a statement of more than 16 MiB ends the connection, again at each turn."""
    for n in range(20):
        make(using, f"job-{n}", payload="x" * 1_000_000)
        move(using, -timedelta(seconds=1), f"job-{n}")
    assert jobs.fire_all_due(using=using) == 20


def test_a_backlog_of_many_jobs_is_shared_out(using: str) -> None:
    """One transaction makes a bounded number of runs, however many jobs have missed how much."""
    for n in range(50):
        make(using, f"job-{n}", cron="* * * * * *", misfire="all", overlap="skip")
        move(using, -timedelta(hours=1), f"job-{n}")
    with CaptureQueriesContext(connections[using]) as queries:
        assert plan_due(using).jobs == 50
    assert rows(using).count() == MOST
    assert len(set(rows(using).values_list("job", flat=True))) == 50
    assert len(queries) < 40


def test_require_atomic_holds_for_triggers_too(using: str) -> None:
    """As for messages: it would be run even if your change is not saved."""
    make(using)
    with override_settings(RELIABLE_MESSAGING={"REQUIRE_ATOMIC": True}):
        with pytest.raises(NotInTransaction):
            jobs.trigger("nightly", using=using)
        with transaction.atomic(using=using):
            jobs.trigger("nightly", using=using)
    assert jobs.fire_all_due(using=using) == 1
