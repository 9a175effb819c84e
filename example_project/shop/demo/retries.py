from __future__ import annotations

from reliable_messaging.models import Failure, OutboxMessage, Status

from ..models import Receipt
from ..services import place_order
from .finding import Finding, compare
from .scene import Scene, error_of, has_status
from .waiting import wait_until

PROMISE = "A failing message is retried"


def failing_message_is_retried(scene: Scene) -> Finding:
    """The mail server defers the receipt twice and takes it at the third try."""
    order = place_order("C-greylisted", email="greylisted@example.com")
    receipts = OutboxMessage.objects.filter(topic="receipt.send", correlation_id=order.reference)
    wait_until("the receipt enqueued by the order's handler", receipts.exists)
    message = receipts.get()
    for failures in (1, 2):
        wait_until(f"failure {failures}", receipts.filter(failures__gte=failures).exists)
        message.refresh_from_db()
        scene.say(f"try {failures} failed: {error_of(message)}")
    wait_until("the receipt sent", has_status(message.pk, Status.DONE))
    message.refresh_from_db()
    scene.say(f"try {message.attempts} succeeded")
    return compare(
        PROMISE,
        expected={"failures": 2, "recorded": 2, "attempts": 3, "receipt": 1},
        seen={
            "failures": message.failures,
            "recorded": sum(Failure.objects.filter(item_id=message.pk).values_list("count", flat=True)),
            "attempts": message.attempts,
            "receipt": Receipt.objects.filter(message_id=message.pk).count(),
        },
    )
