"""Connections that are lost: ended by the server, gone with it, or cut off in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from tests.services import address_of, reached_at

from .chaos import Entry
from .oracle import Oracle
from .proxy import CUTS, Proxy
from .result import Result
from .server_sessions import end_other_sessions
from .servers import OWN, where_available
from .trial import Trial
from .wired import ALLOWED, LEASE, Outage, working

ON_A_WIRE = ("postgres", "mariadb")
LONG, SHORT = 3.0, LEASE * 1.2
"""How long the database is away: the first time long enough to see what the workers do meanwhile."""
LATE = 0.4
"""Delayed by this much, a heartbeat of several statements takes longer than the lease."""


def ended_sessions(using: str, *, seed: int, times: int) -> Result:
    """Every session of busy workers is ended by the server, again and again."""
    trial, ended = Trial(using, seed), 0
    with working(using, count=2, environment={}) as workers:
        workers.warm_up(trial.oracle)
        for _ in range(times):
            trial.keep_busy()
            ended += end_other_sessions(using)
            trial.strike()
            trial.wait_until_back()
        if ended < times:
            trial.problems.append("hardly a session was ended")
        trial.oracle.wait()
        trial.problems += workers.left_sessions()
        return workers.checked(trial.result("every session ended", allowed=ALLOWED))


def crashed_server(using: str, *, seed: int, times: int) -> Result:
    """The server crashes and comes back, while workers are busy and a producer goes on producing."""
    trial = Trial(using, seed)
    with OWN[using]() as server, server.standing_in():
        with working(using, count=2, environment=server.environment) as workers:
            workers.warm_up(trial.oracle)
            with producing(trial.oracle):
                for number in range(times):
                    trial.keep_busy()
                    outage = Outage(workers)
                    server.crash()
                    time.sleep(SHORT if number else LONG)
                    trial.problems += [] if number else outage.problems()
                    server.start()
                    trial.strike()
                    trial.wait_until_back()
                    trial.recovery.settle()
            return workers.checked(trial.result("server crashed", allowed=ALLOWED))


def cut_wire(using: str, *, seed: int, cut: str, times: int) -> Result:
    """The line to the database is cut in one of five ways, and restored."""
    trial = Trial(using, f"{seed} {cut}")
    with Proxy(address_of(using)) as proxy:
        with working(using, environment=reached_at(using, proxy.address)) as workers:
            workers.warm_up(trial.oracle)
            for number in range(times):
                trial.keep_busy()
                outage = Outage(workers, proxy)
                proxy.cut(cut, seconds=LATE)
                trial.strike()
                time.sleep(SHORT if number else LONG)
                trial.problems += [] if number else outage.problems()
                proxy.restore()
                trial.wait_until_back()
                trial.recovery.settle()
            trial.oracle.wait()
            trial.problems += workers.left_sessions()
            name = f"wire cut: {cut.replace('_', '-')}"
            return workers.checked(trial.result(name, allowed=ALLOWED))


@contextmanager
def producing(oracle: Oracle) -> Iterator[None]:
    """A producer in the background. Some of its commits get no answer."""
    stop = threading.Event()

    def produce() -> None:
        try:
            while not stop.wait(0.02):
                oracle.produce(3, together=3)
        finally:
            connections.close_all()

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=130)
        assert not thread.is_alive(), "the producer does not end"


ENTRIES = [
    Entry("ended sessions", ended_sessions, {"times": 50}, ON_A_WIRE),
    Entry("crashed server", where_available(crashed_server, OWN), {"times": 5}, ON_A_WIRE),
    *(Entry(f"cut wire {cut}", cut_wire, {"cut": cut, "times": 10}, ON_A_WIRE) for cut in CUTS),
]
