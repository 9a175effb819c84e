from __future__ import annotations

import pytest

from tests.contract.work_items import KINDS, Bench, Kind


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture
def bench(kind: Kind, using: str) -> Bench:
    return Bench(kind=kind, using=using)
