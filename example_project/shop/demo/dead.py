from __future__ import annotations

from reliable_messaging import outbox
from reliable_messaging.models import Status

from ..models import Alert, Parcel
from ..services import place_order, ship_order
from .finding import Finding, compare
from .scene import Scene, error_of, has_status
from .waiting import wait_until

PROMISE = "A dead message is kept, to be requeued"


def dead_message_is_requeued(scene: Scene) -> Finding:
    """An order without an address cannot be shipped. Someone is told, fills it in, and requeues."""
    order = place_order("D-no-address", address="")
    message = ship_order(order)
    wait_until("the parcel's message dead", has_status(message.pk, Status.DEAD))
    wait_until("someone told", Alert.objects.filter(order=order).exists)
    message.refresh_from_db()
    scene.say(f"dead after {message.failures} failures, and an alert is raised: {error_of(message)}")
    failures, early = message.failures, Parcel.objects.filter(order=order).count()

    order.address = "2 Harbour Street"
    order.save()
    requeued = outbox.requeue(message.pk)
    scene.say("address filled in, message requeued")
    wait_until("the parcel shipped", has_status(message.pk, Status.DONE))
    scene.say("the same message is done")
    return compare(
        PROMISE,
        expected={"failures": 2, "alert": 1, "parcels while dead": 0, "requeued": 1, "parcel": 1},
        seen={
            "failures": failures,
            "alert": Alert.objects.filter(order=order).count(),
            "parcels while dead": early,
            "requeued": int(requeued),
            "parcel": Parcel.objects.filter(message_id=message.pk).count(),
        },
    )
