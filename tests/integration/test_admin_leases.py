"""The admin of leases: who has which, and taking one away."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from reliable_messaging import leases

pytestmark = pytest.mark.django_db

LIST = "admin:reliable_messaging_lease_changelist"


def take_away(client: Client, *names: str) -> str:
    data = {"action": "release", "_selected_action": list(names)}
    return client.post(reverse(LIST), data, follow=True).content.decode()


def client_with(*codenames: str) -> Client:
    user = User.objects.create_user("operator", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def test_a_lease_is_taken_away_and_that_is_logged(admin_client: Client) -> None:
    """Free at once; a LogEntry names user and lease; what was free is counted apart."""
    assert leases.acquire("held", owner="somebody")
    free = leases.acquire("free")
    assert free is not None
    free.release()
    shown = admin_client.get(reverse(LIST)).content.decode()
    assert "somebody" in shown
    assert shown.count('alt="True"') == 1
    told = take_away(admin_client, "held", "free")
    assert leases.holder("held") is None
    assert "1 lease was taken away." in told
    assert "1 was held by nobody." in told
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message) == ("held", "Taken away")


def test_it_needs_its_own_permission() -> None:
    """Who may only look is offered no such action."""
    assert leases.acquire("held")
    client = client_with("view_lease")
    assert "Take away" not in client.get(reverse(LIST)).content.decode()
    take_away(client, "held")
    assert leases.holder("held") is not None
    User.objects.get().user_permissions.add(Permission.objects.get(codename="release_lease"))
    take_away(client, "held")
    assert leases.holder("held") is None
