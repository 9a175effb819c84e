"""The admin: safe to look at, and every change needs its own permission and leaves a trace."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from reliable_messaging import clock, enqueue
from reliable_messaging.models import Failure, OutboxMessage, Status
from tests.factories import OutboxMessageFactory

pytestmark = pytest.mark.django_db

LIST = "admin:reliable_messaging_outboxmessage_changelist"
DETAIL = "admin:reliable_messaging_outboxmessage_change"


@pytest.fixture
def superuser(admin_client: Client) -> Client:
    return admin_client


def client_with(*codenames: str) -> Client:
    user = User.objects.create_user("operator", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(codename__in=[f"{name}_outboxmessage" for name in codenames])
    )
    client = Client()
    client.force_login(user)
    return client


def act(client: Client, action: str, *rows: OutboxMessage) -> Any:
    data = {"action": action, "_selected_action": [str(row.pk) for row in rows]}
    return client.post(reverse(LIST), data, follow=True)


def dead(**values: Any) -> OutboxMessage:
    return OutboxMessageFactory.on("default", status=Status.DEAD, finished_at=timezone.now(), **values)


def test_requeue_revives_dead_messages_and_is_logged(superuser: Client) -> None:
    """Status ready, a LogEntry that names user and action, and a count of what was left alone."""
    revivable, done = dead(), OutboxMessageFactory.on("default", status=Status.DONE)
    response = act(superuser, "requeue", revivable, done)
    revivable.refresh_from_db()
    assert revivable.status == Status.READY
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message) == (str(revivable.pk), "Requeued")
    text = response.content.decode()
    assert "Requeued: 1 outbox message." in text
    assert "1 was left alone" in text


def test_cancel_and_retry_now(superuser: Client) -> None:
    """Each does what its name says to the messages that allow it."""
    waiting = enqueue("x", delay=600)
    act(superuser, "retry_now", waiting)
    waiting.refresh_from_db()
    assert waiting.due_at <= timezone.now()
    act(superuser, "cancel", waiting)
    waiting.refresh_from_db()
    assert waiting.status == Status.CANCELLED
    assert [e.change_message for e in LogEntry.objects.order_by("pk")] == ["Retried now", "Cancelled"]


@pytest.mark.parametrize(
    ("action", "needed"), [("requeue", "requeue"), ("cancel", "cancel"), ("retry_now", "retry")]
)
def test_each_action_needs_its_own_permission(action: str, needed: str) -> None:
    """Who may only look, or has the other permissions, is not offered it and cannot do it."""
    row = dead() if action == "requeue" else enqueue("x", delay=600)
    before = OutboxMessage._base_manager.filter(pk=row.pk).values().get()
    others = {"requeue", "cancel", "retry"} - {needed}
    client = client_with("view", *others)
    assert f'value="{action}"' not in client.get(reverse(LIST)).content.decode()
    act(client, action, row)
    assert OutboxMessage._base_manager.filter(pk=row.pk).values().get() == before
    User.objects.all().delete()
    client = client_with("view", needed)
    assert f'value="{action}"' in client.get(reverse(LIST)).content.decode()
    act(client, action, row)
    assert OutboxMessage._base_manager.filter(pk=row.pk).values().get() != before


def test_changes_need_a_post_with_csrf() -> None:
    """Without the token the request is refused, and nothing happens."""
    row = dead()
    user = User.objects.create_superuser("boss")
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    assert act(client, "requeue", row).status_code == 403
    row.refresh_from_db()
    assert row.status == Status.DEAD


def test_rows_cannot_be_added_changed_or_deleted_by_hand(superuser: Client) -> None:
    """Workers write them; people use the actions."""
    row = dead()
    assert superuser.get(reverse("admin:reliable_messaging_outboxmessage_add")).status_code == 403
    delete = reverse("admin:reliable_messaging_outboxmessage_delete", args=[row.pk])
    assert superuser.post(delete, {"post": "yes"}).status_code == 403
    assert superuser.post(reverse(DETAIL, args=[row.pk]), {"topic": "other"}).status_code == 403


def test_hostile_content_is_shown_escaped(superuser: Client) -> None:
    """Payload, headers, errors and tracebacks with markup in them are text on every page."""
    evil = "<script>alert(1)</script>"
    row = dead(
        payload=f'{{"a":"{evil}"}}', headers={evil: evil}, last_error=evil, topic=evil, result=f'"{evil}"'
    )
    Failure.objects.create(
        item_id=row.pk, fingerprint="f", kind=0, attempt=1, error_class=evil, message=evil, traceback=evil
    )
    for url in (reverse(LIST), reverse(DETAIL, args=[row.pk]), reverse(LIST) + "?topic=" + evil):
        text = superuser.get(url).content.decode()
        assert evil not in text
        assert "&lt;script&gt;" in text


def test_a_huge_or_broken_payload_can_be_looked_at(superuser: Client) -> None:
    """Cut with a note of how much is hidden; what is no JSON is shown as it is."""
    large, broken = dead(payload='"' + "x" * 100_000 + '"'), dead(payload="{not json")
    text = superuser.get(reverse(DETAIL, args=[large.pk])).content.decode()
    assert "80002 more characters" in text
    assert "{not json" in superuser.get(reverse(DETAIL, args=[broken.pk])).content.decode()


def test_it_is_found_by_id_and_correlation_id(superuser: Client) -> None:
    """Whole, by equality; anything else finds nothing, and breaks nothing."""
    row, other = dead(correlation_id="order 7"), dead()
    for term, found in (
        (str(row.pk), {row}),
        ("order 7", {row}),
        (row.pk.hex, {row}),
        ("%", set()),
        ("order", set()),
    ):
        response = superuser.get(reverse(LIST), {"q": term})
        assert set(response.context["cl"].result_list) == found
    assert other not in superuser.get(reverse(LIST), {"q": str(row.pk)}).context["cl"].result_list


def test_filters(superuser: Client) -> None:
    """By status, queue and topic; values of the handlers and of the latest rows are offered."""
    row = dead(queue="mail", topic="a.b")
    dead(queue="other", topic="c.d")
    for query in ({"status__exact": 3, "queue": "mail"}, {"topic": "a.b"}):
        assert list(superuser.get(reverse(LIST), query).context["cl"].result_list) == [row]
    text = superuser.get(reverse(LIST)).content.decode()
    for offered in ("?queue=mail", "?topic=a.b", "?topic=test.effect"):
        assert offered in text


def test_no_page_counts_the_whole_table(superuser: Client, django_assert_max_num_queries: Any) -> None:
    """Every COUNT of the list has a LIMIT inside."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    dead()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert superuser.get(reverse(LIST), {"status__exact": 3}).status_code == 200
    counts = [q["sql"] for q in queries if "COUNT(" in q["sql"] and "outboxmessage" in q["sql"]]
    assert counts
    assert all("LIMIT" in sql for sql in counts)


def test_pages_have_no_inline_script_or_style(superuser: Client) -> None:
    """Ours add none to Django's own: they work under a strict content security policy."""
    row = dead()
    Failure.objects.create(item_id=row.pk, fingerprint="f", kind=0, attempt=1, traceback="t")
    text = superuser.get(reverse(DETAIL, args=[row.pk])).content.decode()
    assert "style=" not in text
    assert "onclick=" not in text


def test_workers_are_listed(superuser: Client) -> None:
    """Where they run, when they were last heard of, and whether that is recent enough to be alive."""
    from reliable_messaging.models import Worker

    Worker.objects.create(host="web-1", pid=42, version="0.1", queues=["mail"])
    url = reverse("admin:reliable_messaging_worker_changelist")
    text = superuser.get(url).content.decode()
    assert "web-1" in text
    assert "icon-yes" in text
    with clock.travel(timedelta(minutes=2)):
        assert "icon-no" in superuser.get(url).content.decode()


@pytest.mark.django_db(databases=["default", "other"])
def test_actions_write_to_the_primary(superuser: Client, settings: Any) -> None:
    """Also where a router lets the list be read from a replica."""
    settings.DATABASE_ROUTERS = [ReadFromOther()]
    on_primary = OutboxMessageFactory.on("default", due_at=timezone.now())
    replica = OutboxMessageFactory.build(id=on_primary.id)
    replica.save(using="other", force_insert=True)
    act(superuser, "cancel", on_primary)
    statuses = {
        alias: OutboxMessage._base_manager.using(alias).get().status for alias in ("default", "other")
    }
    assert statuses == {"default": Status.CANCELLED, "other": Status.READY}
    assert LogEntry.objects.using("default").count() == 1


class ReadFromOther:
    """A primary and a replica, for the outbox."""

    def db_for_read(self, model: type, **hints: Any) -> str | None:
        return "other" if model is OutboxMessage else None

    def db_for_write(self, model: type, **hints: Any) -> str | None:
        return "default" if model is OutboxMessage else None


def test_what_a_ready_message_waits_for_is_shown(superuser: Client) -> None:
    """Retrying after a failure, undeliverable while nobody knows its topic, or just ready."""
    OutboxMessageFactory.on("default", failures=1, last_error="ValueError: x")
    undeliverable = "reliable_messaging.exceptions.Undeliverable: No handler"
    OutboxMessageFactory.on("default", transient_failures=1, last_error=undeliverable)
    OutboxMessageFactory.on("default", last_error="ValueError: before it was requeued")
    text = superuser.get(reverse(LIST)).content.decode()
    for words in (">retrying<", ">undeliverable<", ">ready<"):
        assert f'<td class="field-state"{words}' in text


def test_trouble_can_be_filtered(superuser: Client) -> None:
    """Own failures, infrastructure, nobody who knows the topic, nearly dead, suspects; waiting ones only."""
    made = {
        "retrying": OutboxMessageFactory.on("default", failures=1, max_attempts=5),
        "infrastructure": OutboxMessageFactory.on("default", transient_failures=3),
        "undeliverable": OutboxMessageFactory.on(
            "default", last_error="reliable_messaging.exceptions.Undeliverable: No handler"
        ),
        "suspect": OutboxMessageFactory.on("default", crashes=1),
    }
    made["last-attempt"] = OutboxMessageFactory.on("default", failures=4, max_attempts=5)
    OutboxMessageFactory.on("default", max_attempts=1)
    dead(failures=5, transient_failures=1, crashes=1)
    for kind, row in made.items():
        found = set(superuser.get(reverse(LIST), {"trouble": kind}).context["cl"].result_list)
        assert found == ({row, made["last-attempt"]} if kind == "retrying" else {row})
