"""The shop's handlers. ``reliable_messaging`` imports this module by its name."""

from __future__ import annotations

import os
import time
from typing import Any

from django.db.models import Sum

from reliable_messaging import DeadLetter, Message, Retry, enqueue, handler, on_dead, periodic

from . import pretend
from .models import Alert, Invoice, Order, Parcel, Receipt, StockMove


class MissingAddress(Exception):
    """The order cannot be shipped before someone fills in its address."""


@handler("order.placed")
def reserve_stock(message: Message) -> None:
    """Atomic: the stock move, the next message and the acknowledgement commit together, once."""
    order = _order(message)
    StockMove.objects.using(message.using).create(quantity=-order.quantity, **_trace(message))
    enqueue("receipt.send", {"order": order.pk}, using=message.using)


@handler("receipt.send", atomic=False, timeout=30)
def send_receipt(message: Message) -> None:
    """Network work holds no transaction open. After a crash a mail may be sent a second time."""
    order = _order(message)
    pretend.send_mail(order.email, earlier_tries=message.failures)
    Receipt.objects.using(message.using).create(email=order.email, **_trace(message))


@handler("parcel.ship", max_attempts=2)
def ship_parcel(message: Message) -> None:
    order = _order(message)
    if not order.address:
        raise MissingAddress(f"order {order.reference} has no address")
    Parcel.objects.using(message.using).create(address=order.address, **_trace(message))


@on_dead("parcel.ship")
def raise_alert(letter: DeadLetter) -> None:
    message = letter.message
    Alert.objects.using(message.using).create(text=letter.error, **_trace(message))


@handler("invoice.print")
def print_invoice(message: Message) -> None:
    """Writes first and hangs then, so that a kill finds it with work half done."""
    Invoice.objects.using(message.using).create(**_trace(message))
    note = message.payload["jam_note"]
    if note and message.attempts == 1:
        pretend.jam_printer(note)


@handler("report.build", atomic=False, timeout=3600)
def build_report(message: Message) -> None:
    """Takes minutes, and makes way when the worker is asked to stop."""
    ends = time.monotonic() + message.payload["seconds"]
    while time.monotonic() < ends:
        if message.should_stop:
            raise Retry("The worker stops; another may begin anew.", charge=False)
        time.sleep(0.1)


@handler("order.remind")
def remind_of_payment(message: Message) -> None:
    """Runs when its timer was due, and only if nobody has cancelled that before."""
    order = _order(message)
    text = f"order {order.reference} is not paid yet"
    Alert.objects.using(message.using).create(text=text, **_trace(message))


@periodic("0 3 * * *", name="nightly-stock-report", timezone="Europe/Berlin")
@handler("stock.report")
def report_stock(message: Message) -> dict[str, int]:
    """What a handler returns is kept with its job's run, and shown in the admin."""
    moved = StockMove.objects.using(message.using).aggregate(moved=Sum("quantity", default=0))
    return {"moved": moved["moved"]}


def _order(message: Message) -> Order:
    return Order.objects.using(message.using).get(pk=message.payload["order"])


def _trace(message: Message) -> dict[str, Any]:
    return {
        "order_id": message.payload["order"],
        "message_id": message.id,
        "worker_pid": os.getpid(),
    }
