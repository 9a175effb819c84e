"""What operators do with leases: list them, and take one away."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from reliable_messaging import clock, lease, leases


def run(name: str, *arguments: str) -> tuple[list[str], str]:
    out, err = StringIO(), StringIO()
    call_command(name, *arguments, stdout=out, stderr=err)
    return out.getvalue().splitlines(), err.getvalue()


def test_leases_are_listed(using: str) -> None:
    """By name, with who has it and until when; or since when it is free."""
    assert run("list_leases", "--database", using) == ([], "No lease was ever taken.\n")
    leases.acquire("abandoned", duration=10, owner="gone", using=using)
    with lease("done", using=using):
        pass
    with clock.travel(timedelta(seconds=15)), lease("nightly-report", owner="me", using=using):
        lines, _ = run("list_leases", "--database", using)
    assert [line.split()[:2] for line in lines[1:]] == [
        ["abandoned", "1"],
        ["done", "1"],
        ["nightly-report", "1"],
    ]
    heading, abandoned, done, held = lines
    assert heading == "NAME            TOKEN  OWNER  STATE"
    assert abandoned == "abandoned       1             free, ended 5 s ago unreleased"
    assert done == "done            1             free, released"
    assert held.startswith("nightly-report  1      me     held, ends in ")


def test_a_lease_can_be_taken_away(using: str) -> None:
    """It says from whom; what nobody holds is an error."""
    leases.acquire("nightly-report", owner="me", using=using)
    lines, _ = run("release_lease", "nightly-report", "--database", using)
    assert lines == ["Released the lease 'nightly-report', which me held with token 1."]
    with pytest.raises(CommandError, match="Nobody holds the lease 'nightly-report': manage.py list_leases"):
        run("release_lease", "nightly-report", "--database", using)
    with pytest.raises(CommandError, match="Nobody holds"):
        run("release_lease", "nightly", "--database", using)
