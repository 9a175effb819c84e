"""manage.py run_worker"""

from __future__ import annotations

from .run_outbox_worker import Command as OutboxWorkerCommand


class Command(OutboxWorkerCommand):
    help = (
        "Runs the handlers of outbox messages, and makes messages of what is due, until it is stopped: "
        "run_outbox_worker and run_scheduler in one process. What is not given comes from the setting "
        "RELIABLE_MESSAGING, by the name in brackets."
    )
    scheduler = True
