from __future__ import annotations

from django.db import transaction

from reliable_messaging.models import OutboxMessage, Status

from ..models import Order, StockMove
from ..services import place_order
from .finding import Finding, compare
from .scene import Scene, has_status
from .waiting import wait_until

PROMISE = "A rolled-back order sends nothing"


class PaymentRefused(Exception):
    """The card was refused after the order had been written."""


def rolled_back_order_sends_nothing(scene: Scene) -> Finding:
    """The message goes with the order. A later order, once done, shows that the workers went past."""
    try:
        with transaction.atomic():
            place_order("B-refused")
            scene.say(f"order B-refused is written with {_messages()} message; now its payment is refused")
            written = _messages()
            raise PaymentRefused
    except PaymentRefused:
        pass
    place_order("B-later")
    later = OutboxMessage.objects.get(correlation_id="B-later")
    wait_until("the later order handled", has_status(later.pk, Status.DONE))
    scene.say("a later order was handled meanwhile")
    return compare(
        PROMISE,
        expected={"message written": 1, "messages left": 0, "orders": 0, "stock moves": 0},
        seen={
            "message written": written,
            "messages left": _messages(),
            "orders": Order.objects.filter(reference="B-refused").count(),
            "stock moves": StockMove.objects.filter(order__reference="B-refused").count(),
        },
    )


def _messages() -> int:
    return OutboxMessage.objects.filter(correlation_id="B-refused").count()
