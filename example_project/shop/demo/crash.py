from __future__ import annotations

from pathlib import Path

from reliable_messaging.models import OutboxMessage, Status

from ..models import Invoice
from ..services import bill_order, place_order
from .finding import Finding, compare
from .scene import Scene, has_status
from .waiting import wait_until

PROMISE = "A killed worker's message is finished"


def killed_workers_message_is_finished(scene: Scene) -> Finding:
    """Kill -9 in mid-handler undoes the half-done work; after the lease another worker does it, once."""
    note = scene.directory / "printer-jam"
    message = bill_order(place_order("E-jam"), jam_note=str(note))
    wait_until("a worker in mid-handler", lambda: _pid(note) is not None)
    victim = next(worker for worker in scene.workers if worker.pid == _pid(note))
    # Read before the kill: the open transaction keeps everyone, and the reaper, from changing it.
    message.refresh_from_db()
    at_the_kill, lease_ends = _state(message), message.leased_until
    victim.kill()
    victim.wait()
    scene.say(f"worker {victim.pid} killed with SIGKILL in mid-handler: {at_the_kill}")
    wait_until("the message finished", has_status(message.pk, Status.DONE))
    message.refresh_from_db()
    pids = set(Invoice.objects.filter(message_id=message.pk).values_list("worker_pid", flat=True))
    scene.say(f"worker {', '.join(map(str, pids))} finished it after the lease had ended")
    waited = lease_ends and message.last_attempt_at and message.last_attempt_at >= lease_ends
    return compare(
        PROMISE,
        expected={
            "at the kill:": "claimed, 0 invoices",
            "in the end:": "done, 1 invoice",
            "crash": 1,
            "attempts": 2,
            "lease": "awaited",
            "by": "another worker",
        },
        seen={
            "at the kill:": at_the_kill,
            "in the end:": _state(message),
            "crash": message.crashes,
            "attempts": message.attempts,
            "lease": "awaited" if waited else "ignored",
            "by": "the killed worker" if victim.pid in pids else "another worker",
        },
    )


def _pid(note: Path) -> int | None:
    text = note.read_text() if note.exists() else ""
    return int(text) if text else None


def _state(message: OutboxMessage) -> str:
    count = Invoice.objects.filter(message_id=message.pk).count()
    return f"{Status(message.status).label}, {count} invoice{'s' if count != 1 else ''}"
