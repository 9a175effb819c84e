"""A producer in a process of its own: enqueues, each in a small transaction, as fast as it can.

Time is cut into slots, and the settings change from slot to slot: so both sides of a comparison
share the same seconds, the same processes and the same connections. All producers of a round wait
for the same moment to begin. Run as ``python -m tests.benchmarks.producer FOLDER NUMBER``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import django

PATIENCE_SECONDS = 60.0
PLAN = "plan.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What all producers of a folder do, from which moment of the monotonic clock."""

    begin: float
    slot_seconds: float
    slots: Sequence[dict[str, Any]]
    """RELIABLE_MESSAGING in each."""

    def announce(self, folder: Path) -> None:
        written = folder / f"{PLAN}.written"
        written.write_text(json.dumps(asdict(self)))
        written.rename(folder / PLAN)  # whole or not there


def ready_file(folder: Path, number: int) -> Path:
    return folder / f"ready-{number}"


def counts_file(folder: Path, number: int) -> Path:
    """Where a producer tells how many it committed in each slot."""
    return folder / f"counts-{number}.json"


def main() -> None:
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.benchmarks.settings")
    django.setup()
    from django.db import connection
    from django.test import override_settings

    connection.ensure_connection()
    ready_file(folder, number).touch()
    plan, counts = _wait_for_plan(folder), []
    time.sleep(max(0.0, plan.begin - time.monotonic()))
    for slot, settings in enumerate(plan.slots, start=1):
        with override_settings(RELIABLE_MESSAGING=settings):
            counts.append(_enqueue_until(plan.begin + slot * plan.slot_seconds))
    counts_file(folder, number).write_text(json.dumps(counts))


def _wait_for_plan(folder: Path) -> Plan:
    patience = time.monotonic() + PATIENCE_SECONDS
    while not (folder / PLAN).exists():
        if time.monotonic() > patience:
            raise SystemExit("Nobody gave the signal to begin.")
        time.sleep(0.01)
    return Plan(**json.loads((folder / PLAN).read_text()))


def _enqueue_until(end: float) -> int:
    """How many were committed by then."""
    from django.db import transaction

    from reliable_messaging import enqueue

    from .backlog import sample_payload
    from .benchapp.handlers import NOOP

    committed = 0
    while time.monotonic() < end:
        with transaction.atomic():
            enqueue(NOOP, sample_payload(committed))
        committed += 1
    return committed


if __name__ == "__main__":
    main()
