"""What the shop does when it is asked to: each saves its change and its message together."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction

from reliable_messaging import enqueue, timers
from reliable_messaging.models import OutboxMessage, Timer

from .models import Order


def place_order(reference: str, **details: Any) -> Order:
    """Save an order and its message. Both commit, or neither: also when a caller rolls back."""
    with transaction.atomic():
        order = Order.objects.create(reference=reference, **details)
        enqueue("order.placed", {"order": order.pk}, correlation_id=reference)
    return order


def ship_order(order: Order) -> OutboxMessage:
    return enqueue("parcel.ship", {"order": order.pk}, correlation_id=order.reference)


def bill_order(order: Order, *, jam_note: str = "") -> OutboxMessage:
    """Have the invoice printed; with ``jam_note`` the printer jams at the first try."""
    payload = {"order": order.pk, "jam_note": jam_note}
    return enqueue("invoice.print", payload, correlation_id=order.reference)


def remind_later(order: Order, *, delay: timedelta) -> Timer:
    """A message to come. It has a name by which it can be cancelled."""
    payload, name = {"order": order.pk}, _reminder(order)
    return timers.schedule("order.remind", payload, delay=delay, name=name, correlation_id=order.reference)


def pay_order(order: Order) -> bool:
    """Take the reminder back. False: it was sent already, or there was none."""
    return timers.cancel(_reminder(order))


def _reminder(order: Order) -> str:
    return f"remind-{order.reference}"
