"""The tables that tests write to, and how to empty them."""

from __future__ import annotations

from django.db import connections

from reliable_messaging.models import Failure, Job, JobRun, Lease, OutboxMessage, Timer, Worker
from tests.testapp.models import Effect, Line, Order

TABLES = (OutboxMessage, Failure, Job, JobRun, Lease, Timer, Worker, Effect, Line, Order)


def wipe(alias: str) -> None:
    connection = connections[alias]
    if connection.connection is not None and connection.in_atomic_block:
        connection.close()
    for model in TABLES:
        model._base_manager.using(alias).all()._raw_delete(alias)
    connection.close()
