"""The health check: says what is wrong, in words, and nothing when all is well."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from health_check.exceptions import HealthCheckException, ServiceUnavailable

from reliable_messaging import clock, enqueue, jobs, timers
from reliable_messaging.health import JobsHealth, OutboxHealth, TimersHealth
from reliable_messaging.models import Job, JobRun, OutboxMessage, Status, Worker
from tests.factories import OutboxMessageFactory


def alive(using: str) -> None:
    Worker._base_manager.using(using).create(host="h", pid=1, version="x")


def problem(using: str, **thresholds: Any) -> str:
    try:
        OutboxHealth(alias=using, **thresholds).run()
    except HealthCheckException as exc:
        return exc.message
    return ""


def test_all_is_well(using: str) -> None:
    """A live worker, nothing waiting too long, few dead."""
    alive(using)
    enqueue("x", using=using)
    enqueue("x", delay=9999, using=using)
    assert problem(using) == ""


def test_no_worker_alive(using: str) -> None:
    """None at all, or one whose heartbeat is too old; the threshold can be switched off."""
    assert problem(using) == "0 workers alive, 1 wanted"
    assert problem(using, min_workers=None) == ""
    alive(using)
    with clock.travel(timedelta(seconds=59)):
        assert problem(using) == ""
    with clock.travel(timedelta(seconds=61)):
        assert "0 workers alive" in problem(using)
        assert problem(using, worker_timeout=timedelta(hours=1)) == ""


def test_a_message_waits_too_long(using: str) -> None:
    """The oldest due one decides, in whatever queue or band; suspects count, delayed ones do not."""
    alive(using)
    options = {"worker_timeout": timedelta(days=1)}
    enqueue("x", queue="remote", priority=-1, using=using)
    enqueue("x", delay=3600, using=using)
    with clock.travel(timedelta(minutes=6)):
        assert "the oldest due message waits for 36" in problem(using, **options)
        assert problem(using, max_age=None, **options) == ""
        OutboxMessage._base_manager.using(using).update(crashes=1)
        assert "oldest due" in problem(using, **options)


def test_too_many_are_dead(using: str) -> None:
    """More than the threshold; None switches it off."""
    alive(using)
    for _ in range(3):
        OutboxMessageFactory.on(using, status=Status.DEAD, finished_at=timezone.now())
    assert problem(using, max_dead=3) == ""
    assert problem(using, max_dead=2) == "more than 2 dead messages"
    assert problem(using, max_dead=None) == ""


def test_missing_tables_are_named(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the migrations it says what to run."""
    from django.db import connections

    monkeypatch.setattr(connections[using].introspection, "table_names", lambda *a: [])
    assert "run manage.py migrate" in problem(using)


def test_an_unknown_alias_is_said() -> None:
    """A wrong alias is a clear answer, not a crash."""
    with pytest.raises(ServiceUnavailable, match="nowhere"):
        OutboxHealth(alias="nowhere").run()


@pytest.mark.parametrize("well", [True, False])
def test_the_endpoint_answers(using: str, well: bool, settings: Any) -> None:
    """200 when well, 500 when not, through django-health-check's own view."""
    if well:
        alive(using)
    response = Client().get(f"/health/{using}/", headers={"accept": "application/json"})
    assert response.status_code == (200 if well else 500)
    (answer,) = response.json().values()
    assert ("OK" if well else "0 workers alive") in answer


def test_a_due_timer_waits_too_long(using: str) -> None:
    """No scheduler runs. What is due later does not count."""
    timers.schedule("x", delay=600, using=using)
    TimersHealth(alias=using).run()
    timers.schedule("x", delay=0, using=using)
    TimersHealth(alias=using).run()
    with clock.travel(timedelta(seconds=61)):
        with pytest.raises(HealthCheckException, match="the oldest due timer waits for 6"):
            TimersHealth(alias=using).run()
        TimersHealth(alias=using, max_age=timedelta(hours=1)).run()
        timers.fire_all_due(using=using)
        TimersHealth(alias=using).run()
    assert repr(TimersHealth(alias=using)) == f"TimersHealth(alias={using!r})"


def jobs_problem(using: str, **thresholds: Any) -> str:
    try:
        JobsHealth(alias=using, **thresholds).run()
    except HealthCheckException as exc:
        return exc.message
    return ""


def test_jobs_are_overdue(using: str) -> None:
    """How many, which is the first, and by how much; none that is disabled, late by less, or planned."""
    for name in ("a", "b", "off"):
        jobs.create_or_update(name, topic="x", cron="0 0 1 1 *", misfire="all", using=using)
    assert jobs_problem(using) == ""
    rows, now = Job._base_manager.using(using), clock.read(using)
    rows.filter(pk="off").update(enabled=False, next_run_at=now - timedelta(days=1))
    rows.filter(pk="a").update(next_run_at=now - timedelta(seconds=5))
    rows.filter(pk="b").update(next_run_at=now - timedelta(seconds=100))
    assert jobs_problem(using).startswith("1 job is overdue, the first one (b) by 10")
    assert jobs_problem(using, max_late=timedelta(hours=1)) == ""
    with clock.travel(timedelta(minutes=2)):
        assert jobs_problem(using).startswith("2 jobs are overdue, the first one (b) by 22")
    rows.filter(pk="off").delete()
    jobs.fire_all_due(using=using)
    assert jobs_problem(using) == ""
    assert repr(JobsHealth(alias=using)) == f"JobsHealth(alias={using!r})"


def test_a_due_run_waits_too_long(using: str) -> None:
    """It has not become a message; one that waits for another run does not count."""
    jobs.create_or_update("a", topic="x", cron="0 0 1 1 *", enabled=False, using=using)
    jobs.trigger("a", using=using)
    assert jobs_problem(using) == ""
    with clock.travel(timedelta(seconds=61)):
        assert jobs_problem(using).startswith("the oldest due run waits for 6")
        JobRun._base_manager.using(using).update(held=True)
        assert jobs_problem(using) == ""


def test_an_enabled_job_without_a_next_run(using: str) -> None:
    """Its cron expression cannot be used, or never fires again. The first five are named."""
    for number in range(7):
        jobs.create_or_update(f"job-{number}", topic="x", cron="0 0 1 1 *", enabled=False, using=using)
    assert jobs_problem(using) == ""
    rows = Job._base_manager.using(using)
    rows.filter(pk="job-3").update(enabled=True)
    assert jobs_problem(using) == "1 job is enabled but has no next run (job-3)"
    rows.update(enabled=True)
    assert jobs_problem(using) == (
        "7 jobs are enabled but have no next run (job-0, job-1, job-2, job-3, job-4, …)"
    )


def test_the_tables_of_jobs_are_needed(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the migrations it says what to run."""
    from django.db import connections

    monkeypatch.setattr(connections[using].introspection, "table_names", lambda *a: [])
    missing = "reliable_messaging_job, reliable_messaging_jobrun"
    assert jobs_problem(using) == f"tables are missing ({missing}): run manage.py migrate"
