"""The admin of timers: what waits, and firing or cancelling it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from reliable_messaging import clock, timers
from reliable_messaging.models import Status, Timer

pytestmark = pytest.mark.django_db

LIST = "admin:reliable_messaging_timer_changelist"
DETAIL = "admin:reliable_messaging_timer_change"


def act(client: Client, action: str, *rows: Timer) -> str:
    data = {"action": action, "_selected_action": [str(row.pk) for row in rows]}
    return client.post(reverse(LIST), data, follow=True).content.decode()


def test_timers_are_listed_and_shown(admin_client: Client) -> None:
    """By topic, name and due time; found by their name; the payload is escaped."""
    timer = timers.schedule("order.remind", {"<b>": 1}, delay=60, name="remind-7")
    timers.schedule("order.other", delay=60)
    assert "remind-7" in admin_client.get(reverse(LIST)).content.decode()
    found = admin_client.get(reverse(LIST), {"q": "remind-7"}).context["cl"].result_list
    assert list(found) == [timer]
    shown = admin_client.get(reverse(DETAIL, args=[timer.pk])).content.decode()
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown


def test_waiting_timers_can_be_fired_and_cancelled(admin_client: Client) -> None:
    """Each is logged; what has fired is left alone."""
    timer, other = timers.schedule("a", delay=600), timers.schedule("b", delay=600)
    assert "Due now: 1 timer." in act(admin_client, "fire", timer)
    assert timers.fire_all_due() == 1
    told = act(admin_client, "cancel", timer, other)
    assert "Cancelled: 1 timer." in told
    assert "1 was left alone" in told
    other.refresh_from_db()
    assert other.status == Status.CANCELLED
    logged = LogEntry.objects.values_list("object_id", "change_message")
    assert set(logged) == {(str(timer.pk), "Due now"), (str(other.pk), "Cancelled")}


@pytest.mark.parametrize(("action", "needed"), [("fire", "fire_timer"), ("cancel", "cancel_timer")])
def test_each_action_needs_its_own_permission(action: str, needed: str) -> None:
    """Who may only look changes nothing."""
    timer = timers.schedule("a", delay=600)
    user = User.objects.create_user("operator", is_staff=True)
    client = Client()
    client.force_login(user)
    user.user_permissions.set(Permission.objects.filter(codename="view_timer"))
    act(client, action, timer)
    timer.refresh_from_db()
    assert (timer.status, timer.due_at > clock.read("default") + timedelta(seconds=500)) == (
        Status.READY,
        True,
    )
    user.user_permissions.add(Permission.objects.get(codename=needed))
    assert "1 timer." in act(client, action, timer)
