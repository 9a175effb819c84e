from __future__ import annotations

from datetime import timedelta

from django.db import transaction

from reliable_messaging.models import OutboxMessage, Status, Timer

from ..models import Alert, Order
from ..services import pay_order, place_order, remind_later
from .finding import Finding, compare
from .scene import Scene, has_status
from .schedulers import schedulers
from .waiting import wait_until

PROMISE = "A timer makes one message, unless cancelled"
PAID, OPEN = "F-paid", "F-open"
DELAY = timedelta(seconds=1.5)
MILLISECOND = timedelta(milliseconds=1)


def timer_makes_one_message_unless_cancelled(scene: Scene) -> Finding:
    """Two orders get a reminder each, and the first one is paid. The second one's reminder, which is due
    later, shows that the scheduler went past."""
    with schedulers(scene, 1) as (scheduler,):
        scene.say(f"manage.py run_scheduler runs as process {scheduler.pid}")
        paid, _ = _place_with_reminder(PAID)
        _, timer = _place_with_reminder(OPEN)
        scene.say(f"orders {PAID} and {OPEN} have timers for reminders in {DELAY.total_seconds():g} s")
        cancelled, early = pay_order(paid), _messages(OPEN)
        scene.say(f"{PAID} is paid: its timer is cancelled")
        wait_until(f"the reminder of {OPEN} handled", has_status(timer.pk, Status.DONE))
    late = OutboxMessage.objects.get(pk=timer.pk).created_at - timer.due_at
    scene.say(f"{OPEN} got its reminder: the message was made {late // MILLISECOND} ms after the due time")
    return compare(
        PROMISE,
        expected={
            "messages before": 0,
            "message": 1,
            "made": "when due",
            "reminder": 1,
            "timer cancelled": 1,
            "messages of it": 0,
        },
        seen={
            "messages before": early,
            "message": _messages(OPEN),
            "made": "when due" if late >= timedelta(0) else "too early",
            "reminder": Alert.objects.filter(order__reference=OPEN).count(),
            "timer cancelled": int(cancelled),
            "messages of it": _messages(PAID),
        },
    )


def _place_with_reminder(reference: str) -> tuple[Order, Timer]:
    with transaction.atomic():
        order = place_order(reference)
        return order, remind_later(order, delay=DELAY)


def _messages(reference: str) -> int:
    return OutboxMessage.objects.filter(topic="order.remind", correlation_id=reference).count()
