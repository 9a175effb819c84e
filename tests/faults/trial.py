"""One trial of workers by faults that come again and again: busy, struck, back."""

from __future__ import annotations

import random
import time

from reliable_messaging import clock
from reliable_messaging.models import OutboxMessage, Status
from tests.workers import eventually

from .oracle import Oracle, Recovery
from .patience import patiently
from .result import Result

BACKLOG = 300
"""Of each topic: a worker must not be through with them before the fault comes."""
TOPICS = ("fault.loose", "fault.effect")


class Trial:
    def __init__(self, using: str, seed: object) -> None:
        self.using = using
        self.dice = random.Random(str(seed))
        self.oracle = Oracle(using)
        self.recovery = Recovery(using)
        self.problems: list[str] = []
        self._struck = 0
        self._longest = 0.0

    def keep_busy(self) -> None:
        """Return at some moment at which messages are claimed, and enough others are due."""
        if self._due() < BACKLOG:
            for topic in TOPICS:
                self.oracle.produce(BACKLOG, topic=topic, together=BACKLOG, rolled_back_every=BACKLOG)
        eventually(lambda: self._claimed() > 0, every=0.005)
        time.sleep(self.dice.uniform(0, 0.03))

    def strike(self) -> None:
        """The fault has just happened: count whom it hit."""
        self._struck += self._claimed()

    def wait_until_back(self, seconds: float = 60) -> None:
        """The fault is over: wait for the next message that is done. What is still claimed now is
        followed until its claim is over."""
        began = time.monotonic()
        self.recovery.fault()
        done = self.oracle.done()
        self.oracle.produce(1, rolled_back_every=0)
        while self.oracle.done() <= done:
            self.recovery.look()
            assert time.monotonic() < began + seconds, "no message is done any more"
            time.sleep(0.02)
        self._longest = max(self._longest, time.monotonic() - began)

    def result(self, scenario: str, *, allowed: float) -> Result:
        """When all is done: a scenario in which nobody was hit proves nothing."""
        self.recovery.settle()
        self.oracle.wait()
        missed = [] if self._struck else ["no fault has hit a claimed message"]
        return self.oracle.result(
            scenario,
            faults=self.recovery.faults,
            recovery=max(self._longest, self.recovery.longest or 0.0),
            allowed_recovery=allowed,
            problems=[*self.problems, *missed],
        )

    def _claimed(self) -> int:
        rows = OutboxMessage._base_manager.using(self.using).filter(status=Status.CLAIMED)
        return patiently(self.using, rows.count)

    def _due(self) -> int:
        """Without suspects, which are run one by one, and those that rest."""
        rows = OutboxMessage._base_manager.using(self.using).filter(status=Status.READY, crashes=0)
        return patiently(self.using, rows.filter(due_at__lte=clock.now()).count)
