"""The health check: says what is wrong, in words, and nothing when all is well."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from health_check.exceptions import HealthCheckException, ServiceUnavailable

from reliable_messaging import clock, enqueue, timers
from reliable_messaging.health import OutboxHealth, TimersHealth
from reliable_messaging.models import OutboxMessage, Status, Worker
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
