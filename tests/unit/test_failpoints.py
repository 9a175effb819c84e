"""Failpoints: exact when armed, absent when not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.db import OperationalError

import reliable_messaging
from reliable_messaging import failpoints
from reliable_messaging.exceptions import SettingsError


def test_off_means_an_empty_function() -> None:
    """Without the variable the code calls a function that does nothing, and looks nothing up."""
    assert failpoints.make_hit("") is failpoints._nothing
    assert failpoints.hit is failpoints._nothing


def test_the_same_seed_fires_at_the_same_hits() -> None:
    """A fault can be repeated: the seed decides which of the hits fire."""

    def fired(seed: str) -> list[int]:
        hit = failpoints.make_hit(f"renew:error:0.3:{seed}")
        hits = []
        for number in range(100):
            try:
                hit("renew")
            except OperationalError:
                hits.append(number)
        return hits

    assert fired("7") == fired("7") != fired("8")
    assert 10 < len(fired("7")) < 60


def test_only_the_named_point_fires() -> None:
    """Others pass as if nothing were armed."""
    hit = failpoints.make_hit("claim-locked:error:1:1, sweep:error:0:1")
    for point in failpoints.POINTS:
        if point != "claim-locked":
            hit(point)
    with pytest.raises(OperationalError):
        hit("claim-locked")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("renew", "point:action:probability:seed"),
        ("renew:kill:often:1", "point:action:probability:seed"),
        ("nowhere:kill:1:1", "no point 'nowhere'"),
        ("renew:explode:1:1", "no action 'explode'"),
        ("renew:kill:2:1", "between 0 and 1"),
    ],
)
def test_what_means_nothing_is_refused(text: str, words: str) -> None:
    """A misspelt fault would never come, and a test with it would prove nothing."""
    with pytest.raises(SettingsError, match=words):
        failpoints.make_hit(text)


def test_every_point_is_in_the_code() -> None:
    """A point that no code hits could not fail."""
    package = Path(reliable_messaging.__file__).parent
    code = "".join(path.read_text() for path in package.rglob("*.py"))
    for point in failpoints.POINTS:
        assert f'hit("{point}")' in code


def test_the_variable_arms_a_process() -> None:
    """Killed by its own hand, with the signal that nothing can catch."""
    program = "from reliable_messaging.failpoints import hit; hit('renew')"
    environment = {failpoints.VARIABLE: "renew:kill:1:1", "PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment).returncode == -9
