"""Something to see in the admin: messages of every kind."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth import get_user_model

from reliable_messaging import enqueue, outbox

from .models import Order
from .services import bill_order, place_order, remind_later, ship_order

REPORT_SECONDS = 600


def make_admin() -> None:
    users = get_user_model()._default_manager
    if not users.filter(username="admin").exists():
        users.create_superuser("admin", "admin@example.com", "admin")


def seed() -> None:
    """Once. Call it before a worker runs: it would be quicker than the expiry and the cancelling."""
    if Order.objects.exists():
        return
    for number in range(1, 4):
        order = place_order(f"SHOP-{number}")
        ship_order(order)
        bill_order(order)
    place_order("SHOP-GREYLISTED", email="greylisted@example.com")  # retried, then done
    lost = place_order("SHOP-NO-ADDRESS", address="")
    ship_order(lost)  # dead within seconds
    reminder = {"order": order.pk}
    enqueue("receipt.send", reminder, delay=timedelta(days=1))  # waiting
    remind_later(order, delay=timedelta(days=3))  # a timer
    enqueue("receipt.send", reminder, expires_in=0.001)  # expired
    outbox.cancel(enqueue("receipt.send", reminder, delay=timedelta(hours=1)).pk)
    enqueue("report.build", {"seconds": REPORT_SECONDS})  # running for some minutes
    enqueue("newsletter.send", reminder)  # no handler yet: waits for the version that has it
