from __future__ import annotations

from django.db import transaction
from django.db.models import Count

from reliable_messaging.models import OutboxMessage, Status

from ..models import Order
from ..services import place_order
from .finding import Finding, compare
from .outside import from_outside
from .scene import Scene
from .waiting import wait_until

PROMISE = "Order and message commit together"
ORDERS = 10


def orders_and_messages_commit_together(scene: Scene) -> Finding:
    """Others see neither before the commit and both after it; each message takes effect once."""
    with transaction.atomic():
        for number in range(ORDERS):
            place_order(f"A-{number}")
        before = from_outside(lambda: _orders() + _messages())
        scene.say(f"{ORDERS} orders and their messages are written, not committed: others see {before} rows")
    orders, messages = from_outside(_orders), from_outside(_messages)
    scene.say(f"committed: others see {orders} orders and {messages} messages; the workers take over")
    wait_until("every order handled", lambda: _messages(status=Status.DONE) == ORDERS)
    return compare(
        PROMISE,
        expected={
            "rows before commit": 0,
            "orders": ORDERS,
            "messages": ORDERS,
            "orders with one stock move": ORDERS,
        },
        seen={
            "rows before commit": before,
            "orders": orders,
            "messages": messages,
            "orders with one stock move": _orders_with_one_stock_move(),
        },
    )


def _orders() -> int:
    return Order.objects.count()


def _messages(**conditions: object) -> int:
    return OutboxMessage.objects.filter(topic="order.placed", **conditions).count()


def _orders_with_one_stock_move() -> int:
    return Order.objects.annotate(moves=Count("stockmove")).filter(moves=1).count()
