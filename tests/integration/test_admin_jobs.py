"""The admin of jobs and of their runs: what the API checks, and each change with its own permission."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from reliable_messaging import jobs, outbox
from reliable_messaging.hooks import is_ours
from reliable_messaging.jobs.declared import forget, periodic, sync
from reliable_messaging.models import Job, JobRun, OutboxMessage, RunOutcome
from tests.factories import JobRunFactory

pytestmark = pytest.mark.django_db

JOBS = "admin:reliable_messaging_job_changelist"
JOB = "admin:reliable_messaging_job_change"
ADD = "admin:reliable_messaging_job_add"
DELETE = "admin:reliable_messaging_job_delete"
RUNS = "admin:reliable_messaging_jobrun_changelist"
RUN = "admin:reliable_messaging_jobrun_change"
TOPIC = "test.effect"
NIGHTLY = "30 2 * * *"
EVIL = "<script>alert(1)</script>"


def job(name: str = "nightly", **options: Any) -> Job:
    return jobs.create_or_update(name, **{"topic": TOPIC, "cron": NIGHTLY, **options})


def filled_in(**changes: str) -> dict[str, str]:
    """The form as a browser sends it."""
    return {
        "name": "nightly",
        "topic": TOPIC,
        "payload": "null",
        "headers": "{}",
        "enabled": "on",
        "cron": NIGHTLY,
        "timezone": "UTC",
        "misfire": "once",
        "misfire_grace": "00:01:00",
        "overlap": "allow",
        "queue": "",
        "priority": "0",
        "max_attempts": "",
        "time_to_live": "",
        **changes,
    }


def errors(response: Any) -> dict[str, list[str]]:
    return dict(response.context["adminform"].form.errors) if response.status_code == 200 else {}


def act(client: Client, action: str, *names: Any, url: str = JOBS, **more: str) -> str:
    data = {"action": action, "_selected_action": [str(name) for name in names], **more}
    return client.post(reverse(url), data, follow=True).content.decode()


def client_with(*codenames: str) -> Client:
    user, _ = User.objects.get_or_create(username="operator", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def everything() -> list[Any]:
    return [list(model._base_manager.order_by("pk").values()) for model in (Job, JobRun, OutboxMessage)]


def run_all() -> None:
    """What a scheduler and a worker do."""
    jobs.fire_all_due()
    outbox.queue.ack(outbox.queue.claim(limit=50))


@pytest.fixture
def declared() -> Iterator[Job]:
    @periodic(NIGHTLY, name="declared", topic=TOPIC)
    def handle(message: Any) -> None: ...

    sync(using="default")
    yield Job.objects.get(pk="declared")
    forget(handle)


# The form


def test_a_job_is_added_as_by_the_api(admin_client: Client, django_capture_on_commit_callbacks: Any) -> None:
    """The same row: cron and payload as they are stored, its next run worked out, a scheduler woken."""
    with django_capture_on_commit_callbacks() as callbacks:
        sent = filled_in(cron=" 30  2 * * 0-7 ", payload=' {"a": [1, null]} ', headers='{"trace": "x"}')
        assert admin_client.post(reverse(ADD), sent).status_code == 302
    (made,) = Job.objects.all()
    assert any(map(is_ours, callbacks))
    values = Job._base_manager.values
    by_hand = values().exclude(pk=None).get()
    jobs.delete("nightly")
    job(cron="30 2 * * 0-7", payload={"a": [1, None]}, headers={"trace": "x"})
    by_api = values().get()
    assert {**by_hand, "created_at": None} == {**by_api, "created_at": None}
    assert made.next_run_at is not None
    assert made.declared is None


BAD = [
    ("name", "a\x7fb", "control character"),
    ("name", "", "required"),
    ("topic", "x" * 201, "200"),
    ("payload", "{not json", "no JSON"),
    ("payload", "hello", "no JSON"),
    ("payload", "", "required"),
    ("payload", "NaN", "cannot be written as JSON"),
    ("payload", "9" * 5000, "no JSON"),
    ("payload", "[" * 101 + "]" * 101, "nested deeper"),
    ("payload", "[" * 100_000, "no JSON"),
    ("payload", '"\\u0000"', "NUL"),
    ("payload", '"\\ud800"', "surrogate"),
    ("payload", f'"{"x" * 1_100_000}"', "MAX_PAYLOAD_BYTES"),
    ("headers", "[1]", "must be a mapping"),
    ("headers", "[" * 100_000, "no JSON"),
    ("headers", "{a", "no JSON"),
    ("queue", "a,b", "comma"),
    ("priority", "7", "valid choice"),
    ("max_attempts", "0", "from 1 to"),
    ("max_attempts", "1000001", "from 1 to"),
    ("max_attempts", "many", "whole number"),
    ("time_to_live", "0", "positive"),
    ("time_to_live", "40000 00:00:00", "hundred years"),
    ("cron", "", "required"),
    ("cron", "* * *", "has 3 fields"),
    ("cron", "61 * * * *", "minute field"),
    ("cron", "0 0 30 2 *", "never fires"),
    ("cron", "H 2 * * *", "H or R"),
    ("cron", "R 2 * * *", "H or R"),
    ("timezone", "Europe/Nowhere", "no time zone"),
    ("timezone", "../etc/passwd", "no time zone"),
    ("misfire", "never", "valid choice"),
    ("misfire_grace", "00:00:00.5", "1 s or more, not 0.5 s"),
    ("misfire_grace", "-1", "cannot be negative"),
    ("overlap", "perhaps", "valid choice"),
]


@pytest.mark.parametrize(("field", "value", "says"), BAD, ids=[f"{f}={v[:20]}" for f, v, _ in BAD])
def test_what_the_api_refuses_is_an_error_at_its_field(
    admin_client: Client, field: str, value: str, says: str
) -> None:
    """And at no other; nothing is written, neither when a job is added nor when one is changed."""
    before = everything()
    found = errors(admin_client.post(reverse(ADD), filled_in(**{field: value})))
    assert list(found) == [field]
    assert says in " ".join(found[field])
    assert everything() == before
    if field == "name":
        return
    job()
    before = everything()
    found = errors(admin_client.post(reverse(JOB, args=["nightly"]), filled_in(**{field: value})))
    assert list(found) == [field]
    assert everything() == before
    assert not LogEntry.objects.exists()


def test_all_errors_are_said_at_once(admin_client: Client) -> None:
    """Each at its own field."""
    sent = filled_in(cron="x", timezone="x/y", payload="x", queue="a,b", misfire_grace="0")
    assert set(errors(admin_client.post(reverse(ADD), sent))) == {
        "cron",
        "timezone",
        "payload",
        "queue",
        "misfire_grace",
    }


def test_a_name_that_is_taken_is_refused(admin_client: Client) -> None:
    """The job that is there stays as it was: adding does not change."""
    job()
    before = everything()
    sent = filled_in(cron="0 5 * * *")
    assert errors(admin_client.post(reverse(ADD), sent)) == {"name": ["There is a job of this name already."]}
    assert everything() == before


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        ({"payload": "7", "priority": "1", "overlap": "skip"}, True),
        ({"cron": "30  2 * * *"}, True),
        ({"cron": "31 2 * * *"}, False),
        ({"timezone": "Asia/Tokyo"}, False),
    ],
)
def test_a_change_keeps_the_next_run_unless_the_schedule_is_another(
    admin_client: Client, changes: dict[str, str], stays: bool
) -> None:
    """Also one that is due and not yet planned."""
    job()
    due = datetime(2020, 1, 1, 2, 30, tzinfo=timezone.utc)
    Job.objects.update(next_run_at=due)
    assert admin_client.post(reverse(JOB, args=["nightly"]), filled_in(**changes)).status_code == 302
    next_run_at = Job.objects.get().next_run_at
    assert next_run_at is not None
    assert (next_run_at == due) == stays
    assert next_run_at == due or next_run_at > datetime.now(timezone.utc)


def test_disabling_in_the_form_takes_the_next_run_away(admin_client: Client) -> None:
    """A box that is not ticked is not sent at all."""
    job()
    sent = filled_in()
    del sent["enabled"]
    admin_client.post(reverse(JOB, args=["nightly"]), sent)
    assert Job.objects.values_list("enabled", "next_run_at").get() == (False, None)


def test_what_the_page_shows_can_be_sent_back(admin_client: Client) -> None:
    """Saved as it was opened, nothing is another: no lost header, no payload within quotes, no new name."""
    job(
        payload={"text": "ü\n<b>", "n": 1.5},
        headers={"a": "b"},
        queue="mail",
        priority=-1,
        max_attempts=3,
        expires_in=timedelta(days=2, microseconds=5),
        timezone="Europe/Berlin",
        misfire="all",
        misfire_grace=90,
        overlap="queue",
    )
    before = everything()
    form = admin_client.get(reverse(JOB, args=["nightly"])).context["adminform"].form
    assert "name" not in form.fields
    sent = {name: form[name].value() for name in form.fields}
    sent = {name: "" if value is None else str(value) for name, value in sent.items()}
    sent["name"] = "other"
    assert admin_client.post(reverse(JOB, args=["nightly"]), sent).status_code == 302
    assert everything() == before
    assert LogEntry.objects.get().get_change_message() == "No fields changed."


def test_a_bad_input_is_shown_again(admin_client: Client) -> None:
    """As it was typed, also where Python fails to read it."""
    page = admin_client.post(reverse(ADD), filled_in(payload="{oops", headers="[" * 5000)).content.decode()
    assert "{oops" in page
    assert "[" * 5000 in page


def test_the_next_five_times_are_shown_in_its_zone(admin_client: Client) -> None:
    """Also of a job that is disabled; one whose cron somebody has broken can still be opened."""
    job(timezone="Asia/Tokyo", enabled=False)
    page = admin_client.get(reverse(JOB, args=["nightly"])).content.decode()
    assert page.count("02:30:00 JST") == 5
    Job.objects.update(cron="whatever")
    page = admin_client.get(reverse(JOB, args=["nightly"])).content.decode()
    assert "has 1 field" in page
    assert "shown_next_times" not in admin_client.get(reverse(ADD)).content.decode()


def test_hostile_content_is_text(admin_client: Client) -> None:
    """In a job's name, payload and headers; in a run's job, payload, output and error."""
    job(EVIL, payload=EVIL, headers={EVIL: EVIL})
    run = JobRunFactory.on("default", job=EVIL, payload=f'"{EVIL}"', result=f'"{EVIL}"', last_error=EVIL)
    JobRunFactory.on("default", job=EVIL, payload=EVIL)
    Job.objects.update(cron=EVIL)
    pages = [
        admin_client.get(reverse(JOBS)),
        admin_client.get(reverse(JOBS), {"q": EVIL}),
        admin_client.get(reverse(JOB, args=[admin.utils.quote(EVIL)])),
        admin_client.post(reverse(ADD), filled_in(name=EVIL, payload=EVIL, cron=EVIL, headers=EVIL)),
        admin_client.get(reverse(RUNS)),
        admin_client.get(reverse(RUN, args=[run.pk])),
    ]
    for page in pages:
        assert page.status_code == 200
        assert EVIL not in page.content.decode()
        assert "&lt;script&gt;" in page.content.decode()


# Declared in the code


def test_it_is_said_what_differs_from_the_code(admin_client: Client, declared: Job) -> None:
    """Nothing at first; then each field that somebody has changed, and what the code says of it."""
    url = reverse(JOB, args=["declared"])
    assert "it is as the code says" in admin_client.get(url).content.decode()
    said = declared.declared
    admin_client.post(url, filled_in(cron="0 5 * * *", misfire_grace="90"))
    page = admin_client.get(url).content.decode()
    assert "cron expression: the code says &quot;30 2 * * *&quot;" in page
    assert "missed after: the code says 60.0" in page
    assert page.count("the code says") == 2
    assert Job.objects.get().declared == said
    job("other")
    assert "Declared in the code" not in admin_client.get(reverse(JOB, args=["other"])).content.decode()


def test_a_declared_job_cannot_be_deleted(admin_client: Client, declared: Job) -> None:
    """It would come back: no button, no page, and left alone among others that are deleted."""
    assert "deletelink" not in admin_client.get(reverse(JOB, args=["declared"])).content.decode()
    assert admin_client.post(reverse(DELETE, args=["declared"]), {"post": "yes"}).status_code == 403
    assert "1 was left alone: the code declares it" in act(admin_client, "delete_selected", "declared")
    job()
    told = act(admin_client, "delete_selected", "declared", "nightly")
    assert "1 was left alone" in told
    assert Job.objects.count() == 2  # asked first
    act(admin_client, "delete_selected", "declared", "nightly", post="yes")
    assert list(Job.objects.values_list("pk", flat=True)) == ["declared"]
    assert [entry.object_id for entry in LogEntry.objects.all()] == ["nightly"]


# Deleting


@pytest.mark.parametrize("bulk", [True, False])
def test_deleting_cancels_what_has_not_started(admin_client: Client, bulk: bool) -> None:
    """Runs that wait, and runs that are messages already; not one that runs, nor another job's."""
    job()
    running = jobs.trigger("nightly")
    jobs.fire_all_due()
    assert outbox.queue.claim()
    sent = jobs.trigger("nightly")
    jobs.fire_all_due()
    waiting = jobs.trigger("nightly")
    job("other")
    other = jobs.trigger("other")
    if bulk:
        act(admin_client, "delete_selected", "nightly", post="yes")
    else:
        admin_client.post(reverse(DELETE, args=["nightly"]), {"post": "yes"})
    assert list(Job.objects.values_list("pk", flat=True)) == ["other"]
    outcomes = dict(JobRun.objects.values_list("pk", "outcome"))
    assert outcomes == {
        running.pk: None,
        sent.pk: RunOutcome.CANCELLED,
        waiting.pk: RunOutcome.CANCELLED,
        other.pk: None,
    }
    assert LogEntry.objects.get().is_deletion()


# Permissions


@pytest.mark.parametrize(
    ("action", "needed"), [("run_now", "run_job"), ("enable", "enable_job"), ("disable", "disable_job")]
)
def test_each_action_needs_its_own_permission(action: str, needed: str) -> None:
    """Who has all the others is not offered it and cannot do it."""
    job(enabled=action != "enable")
    before = everything()
    others = {"add_job", "change_job", "delete_job", "run_job", "enable_job", "disable_job"} - {needed}
    client = client_with("view_job", *others)
    assert f'value="{action}"' not in client.get(reverse(JOBS)).content.decode()
    assert "No action selected" in act(client, action, "nightly")
    assert everything() == before
    client = client_with("view_job", needed)
    assert f'value="{action}"' in client.get(reverse(JOBS)).content.decode()
    assert ": 1 job." in act(client, action, "nightly")
    assert everything() != before
    assert LogEntry.objects.get().object_id == "nightly"


def test_writing_needs_djangos_permissions() -> None:
    """Adding, changing and deleting: 403 without; who may only look sees the page."""
    job()
    before = everything()
    client = client_with("view_job", "run_job", "enable_job", "disable_job")
    assert client.get(reverse(JOB, args=["nightly"])).status_code == 200
    assert client.post(reverse(ADD), filled_in(name="other")).status_code == 403
    assert client.post(reverse(JOB, args=["nightly"]), filled_in(cron="0 5 * * *")).status_code == 403
    assert client.post(reverse(DELETE, args=["nightly"]), {"post": "yes"}).status_code == 403
    assert "No action selected" in act(client, "delete_selected", "nightly", post="yes")
    assert everything() == before
    assert client_with().get(reverse(JOBS)).status_code == 403
    client = client_with("view_job", "add_job", "change_job", "delete_job")
    assert client.post(reverse(ADD), filled_in(name="other")).status_code == 302
    assert client.post(reverse(JOB, args=["nightly"]), filled_in(cron="0 5 * * *")).status_code == 302
    assert client.post(reverse(DELETE, args=["other"]), {"post": "yes"}).status_code == 302
    assert list(Job.objects.values_list("pk", "cron")) == [("nightly", "0 5 * * *")]


def test_actions_are_done_by_post_only() -> None:
    """With the token, too: a link, or another site's form, starts nothing."""
    job()
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("boss"))
    data = {"action": "run_now", "_selected_action": ["nightly"]}
    assert client.post(reverse(JOBS), data).status_code == 403
    client.get(reverse(JOBS), data)
    assert not JobRun.objects.exists()


# Actions


def test_run_now_makes_a_manual_run(admin_client: Client) -> None:
    """Also of a job that is disabled; its schedule stays."""
    next_run_at = job().next_run_at
    job("off", enabled=False)
    assert "Run now: 2 jobs." in act(admin_client, "run_now", "nightly", "off")
    runs = JobRun.objects.order_by("job")
    assert [(run.job, run.is_manual) for run in runs] == [("nightly", True), ("off", True)]
    assert Job.objects.get(pk="nightly").next_run_at == next_run_at
    logged = LogEntry.objects.order_by("object_id").values_list("object_id", "change_message")
    assert list(logged) == [("nightly", "Run now"), ("off", "Run now")]


def test_enable_and_disable(admin_client: Client) -> None:
    """What is so already is left alone, and said."""
    job("on")
    job("off", enabled=False)
    told = act(admin_client, "disable", "on", "off")
    assert "Disabled: 1 job." in told
    assert "1 was left alone" in told
    assert not Job.objects.filter(next_run_at__isnull=False).exists()
    assert "Enabled: 2 jobs." in act(admin_client, "enable", "on", "off")
    assert Job.objects.filter(enabled=True, next_run_at__isnull=False).count() == 2
    logged = LogEntry.objects.order_by("pk").values_list("object_id", "change_message")
    assert sorted(logged) == [("off", "Enabled"), ("on", "Disabled"), ("on", "Enabled")]


def test_one_that_cannot_be_enabled_does_not_keep_the_others(admin_client: Client) -> None:
    """Somebody has broken its cron expression; the reason is told."""
    job("bad", enabled=False)
    job("good", enabled=False)
    Job.objects.filter(pk="bad").update(cron="whatever")
    told = act(admin_client, "enable", "bad", "good")
    assert "&#x27;bad&#x27;: The cron expression &#x27;whatever&#x27; has 1 field" in told
    assert "Enabled: 1 job." in told
    assert "left alone" not in told
    assert dict(Job.objects.values_list("pk", "enabled")) == {"bad": False, "good": True}
    assert [entry.object_id for entry in LogEntry.objects.all()] == ["good"]


@pytest.mark.django_db(databases=["default", "other"])
def test_what_is_read_from_a_replica_is_written_to_the_primary(admin_client: Client, settings: Any) -> None:
    """By the form, the actions and deletion."""
    for alias in ("default", "other"):
        job(using=alias)
    replica = Job._base_manager.using("other").values().get()
    settings.DATABASE_ROUTERS = [ReadFromOther()]
    primary = Job._base_manager.using("default")
    act(admin_client, "disable", "nightly")
    assert not primary.get().enabled
    admin_client.post(reverse(JOB, args=["nightly"]), filled_in(cron="0 5 * * *"))
    assert primary.get().cron == "0 5 * * *"
    assert admin_client.post(reverse(ADD), filled_in(name="other")).status_code == 302
    assert primary.count() == 2
    act(admin_client, "run_now", "nightly")
    admin_client.post(reverse(DELETE, args=["nightly"]), {"post": "yes"})
    assert list(primary.values_list("pk", flat=True)) == ["other"]
    assert JobRun._base_manager.using("default").get().outcome == RunOutcome.CANCELLED
    assert Job._base_manager.using("other").values().get() == replica
    assert not JobRun._base_manager.using("other").exists()


class ReadFromOther:
    """A primary and a replica, for jobs."""

    def db_for_read(self, model: type, **hints: Any) -> str | None:
        return "other" if model is Job else None

    def db_for_write(self, model: type, **hints: Any) -> str | None:
        return "default"


# The lists


def test_jobs_are_listed_with_their_last_run(admin_client: Client) -> None:
    """The one with the latest due time, whenever it was made; nothing of a job that has not run."""
    at = datetime(2026, 1, 2, 3, 4, tzinfo=timezone.utc)
    job("a")
    job("b")
    JobRunFactory.on("default", job="a", scheduled_for=at, outcome=RunOutcome.FAILED)
    JobRunFactory.on("default", job="a", scheduled_for=at - timedelta(hours=1), outcome=RunOutcome.SUCCEEDED)
    a, b = admin_client.get(reverse(JOBS)).context["cl"].result_list
    page = admin_client.get(reverse(JOBS)).content.decode()
    assert (a.last_scheduled_for, b.last_scheduled_for) == (at, None)
    assert '<td class="field-last_outcome">failed</td>' in page
    assert '<td class="field-last_outcome">-</td>' in page
    assert "succeeded" not in page


def test_the_state_of_a_run_in_words(admin_client: Client) -> None:
    """Pending, until its message is claimed; waiting for another; and then how it ended. The job says the
    same of its last run."""
    job(overlap="queue")

    def seen() -> list[str]:
        rows = admin_client.get(reverse(RUNS)).content.decode().split('<td class="field-state">')[1:]
        last = admin_client.get(reverse(JOBS)).content.decode().split('<td class="field-last_outcome">')[1]
        states = [row.split("<")[0] for row in rows]
        assert last.split("<")[0] == states[0]
        return states

    jobs.trigger("nightly")
    jobs.fire_all_due()
    assert seen() == ["pending"]
    jobs.trigger("nightly")
    jobs.fire_all_due()
    assert seen() == ["waiting for the run before it", "pending"]
    claimed = outbox.queue.claim()
    assert seen() == ["waiting for the run before it", "running"]
    outbox.queue.fail(claimed, ValueError("no"))
    assert seen() == ["waiting for the run before it", "failed"]
    run_all()
    assert seen() == ["succeeded", "failed"]


def test_jobs_are_found_by_how_their_name_begins(admin_client: Client) -> None:
    """As one text, in which nothing is a pattern; and by whether they are enabled."""
    for name, enabled in (("report daily", True), ("report weekly", False), ("daily", True)):
        job(name, enabled=enabled)

    def found(**query: str) -> list[str]:
        return [row.pk for row in admin_client.get(reverse(JOBS), query).context["cl"].result_list]

    assert found(q="report") == ["report daily", "report weekly"]
    assert found(q="report daily") == ["report daily"]
    assert found(q="%") == []
    assert found(q="weekly") == []
    assert found(enabled__exact="0") == ["report weekly"]


def test_runs_are_found_by_job_id_and_outcome(admin_client: Client) -> None:
    """Whole names only; those that have not ended are an outcome to ask for, too."""
    a = JobRunFactory.on("default", job="a", outcome=RunOutcome.SUCCEEDED)
    b = JobRunFactory.on("default", job="ab", outcome=RunOutcome.FAILED)
    c = JobRunFactory.on("default", job="a")

    def found(**query: str) -> list[Any]:
        return [row.pk for row in admin_client.get(reverse(RUNS), query).context["cl"].result_list]

    assert found() == [c.pk, b.pk, a.pk]
    assert found(q="a") == [c.pk, a.pk]
    assert found(q=str(b.pk)) == [b.pk]
    assert found(q="%") == []
    assert found(outcome="open") == [c.pk]
    assert found(outcome="1") == [b.pk]
    assert found(outcome="0", q="a") == [a.pk]
    assert found(outcome="nonsense") == [c.pk, b.pk, a.pk]


@pytest.mark.parametrize("url", [JOBS, RUNS])
def test_a_list_takes_as_many_queries_for_twenty_as_for_one(admin_client: Client, url: str) -> None:
    """However many rows it has."""

    def make(name: str) -> None:
        job(name)
        jobs.trigger(name)
        jobs.fire_all_due()

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(reverse(url)).status_code == 200
        return len(captured)

    make("first")
    queries()  # the content types are read once
    before = queries()
    for number in range(19):
        make(f"job-{number}")
    assert queries() == before


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_the_lists_work_on_every_database(using: str, rf: RequestFactory) -> None:
    """The subqueries are what all of them understand, and the run of another job is not taken for its own."""
    job("a", using=using)
    job("b", using=using)
    jobs.trigger("b", using=using)
    jobs.fire_all_due(using=using)
    outbox.queue.using(using).claim()
    listed, runs = (
        admin.site.get_model_admin(model).get_queryset(rf.get("/")).using(using).order_by("pk")
        for model in (Job, JobRun)
    )
    (run,) = runs
    assert [(row.last_run_id, row.last_message_status) for row in listed] == [(None, None), (run.pk, 1)]
    assert run.message_status == 1


# The page of a run, and its action


def test_the_page_of_a_run(admin_client: Client) -> None:
    """What it was given, what it gave, and the way to its message while that is there."""
    job(payload={"report": 7})
    run = jobs.trigger("nightly")
    message = reverse("admin:reliable_messaging_outboxmessage_change", args=[run.pk])
    assert message not in admin_client.get(reverse(RUN, args=[run.pk])).content.decode()
    run_all()
    page = admin_client.get(reverse(RUN, args=[run.pk])).content.decode()
    assert "&quot;report&quot;: 7" in page
    assert f'href="{message}"' in page
    assert admin_client.get(message).status_code == 200
    OutboxMessage.objects.all().delete()
    JobRun.objects.update(result='{"rows": 3}', last_error="ValueError: no")
    page = admin_client.get(reverse(RUN, args=[run.pk])).content.decode()
    assert message not in page
    assert "&quot;rows&quot;: 3" in page
    assert "ValueError: no" in page


def test_runs_that_have_not_started_are_cancelled(admin_client: Client) -> None:
    """Whether they are messages already or not; one that has ended is left alone. Each is logged."""
    job()
    done = jobs.trigger("nightly")
    run_all()
    sent = jobs.trigger("nightly")
    jobs.fire_all_due()
    waiting = jobs.trigger("nightly")
    told = act(admin_client, "cancel", done.pk, sent.pk, waiting.pk, url=RUNS)
    assert "Cancelled: 2 job runs." in told
    assert "1 was left alone" in told
    outcomes = dict(JobRun.objects.values_list("pk", "outcome"))
    assert outcomes == {
        done.pk: RunOutcome.SUCCEEDED,
        sent.pk: RunOutcome.CANCELLED,
        waiting.pk: RunOutcome.CANCELLED,
    }
    assert {entry.object_id for entry in LogEntry.objects.all()} == {str(sent.pk), str(waiting.pk)}
    assert not outbox.queue.claim()


def test_cancelling_needs_its_own_permission(admin_client: Client) -> None:
    """And nobody writes a run by hand."""
    job()
    run = jobs.trigger("nightly")
    client = client_with("view_jobrun", "change_jobrun", "delete_jobrun", "add_jobrun")
    assert 'value="cancel"' not in act(client, "cancel", run.pk, url=RUNS)
    assert client.post(reverse(RUN, args=[run.pk]), {"job": "other"}).status_code == 403
    assert client.get(reverse("admin:reliable_messaging_jobrun_add")).status_code == 403
    delete = reverse("admin:reliable_messaging_jobrun_delete", args=[run.pk])
    assert client.post(delete, {"post": "yes"}).status_code == 403
    assert JobRun.objects.get().outcome is None
    client = client_with("view_jobrun", "cancel_jobrun")
    assert "Cancelled: 1 job run." in act(client, "cancel", run.pk, url=RUNS)


@pytest.mark.parametrize("url", [JOBS, JOB, ADD, RUNS])
def test_pages_have_no_inline_script_or_style(admin_client: Client, url: str) -> None:
    """Ours add none to Django's own: they work under a strict content security policy."""
    job()
    page = admin_client.get(reverse(url, args=["nightly"] if url == JOB else [])).content.decode()
    assert "style=" not in page
    assert "onclick=" not in page
