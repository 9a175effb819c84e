"""Handlers that hang, several at once."""

from __future__ import annotations

import pytest

from tests.faults.scenario_hung import frozen, hung
from tests.testapp.hangs import HOOK

SEED = 20261117


@pytest.mark.parametrize("supervised", [False, True], ids=["alone", "supervised"])
def test_hung_handlers_cost_one_charge_each_and_the_process(using: str, supervised: bool) -> None:
    """All four threads hang, each in its own way, and an on_commit hook does too: each message is charged
    once (the hook's is done, and charged with nothing), a new worker takes over and inherits no
    connection. The neighbours are done once and charged with nothing; on SQLite with a crash at most."""
    wave = ["hang.lock", "hang.signals.loose", "hang.sleep.loose", "hang.swallow.loose", HOOK]
    hung(using, seed=SEED, supervised=supervised, waves=[wave], neighbours=10).check()


def test_a_process_that_a_handler_has_frozen_is_ended(database_access: None) -> None:
    """A regular expression that never ends lets no other thread run, so no guard of ours either: the
    system's alarm ends the process, with a word about where it stood. That costs a crash."""
    frozen("default", seed=SEED, topics=["hang.frozen.loose"], neighbours=10).check()
