"""Another worker, ticked by hand: it takes what a zombie's claims no longer protect."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction

from reliable_messaging import Message
from reliable_messaging.ids import uuid7
from reliable_messaging.outbox import queue
from tests.testapp.models import Effect

LONG = 3600


class Thief:
    def __init__(self, using: str) -> None:
        self.using = using
        self.holds: list[Message] = []
        self.settled: list[Message] = []
        self._queue = queue.using(using, worker_id=uuid7())

    def steal(self) -> None:
        """All that can be had. Every other one is settled at once; the rest is held."""
        self._queue.reap()
        self.holds += self._queue.claim(limit=100, lease=LONG)
        while suspect := self._queue.claim_suspect(lease=LONG):
            self.holds += suspect
        self._settle(self.holds[::2])

    def finish(self) -> None:
        self._settle(self.holds)

    @property
    def has(self) -> set[UUID]:
        return {message.id for message in (*self.holds, *self.settled)}

    def _settle(self, messages: list[Message]) -> None:
        """As an atomic handler is settled: its effect and the ack commit together."""
        for message in list(messages):
            with transaction.atomic(using=self.using):
                Effect.objects.using(self.using).create(name=str(message.payload["number"]))
                assert not self._queue.ack([message]), "a claim of the thief's was lost"
            self.holds.remove(message)
            self.settled.append(message)
