"""Fixtures: a database to work on, wiped after each test; helpers to make and look at messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from django.test.utils import override_settings, setup_databases, teardown_databases

from tests.sessions import keeping_plans
from tests.tables import wipe
from tests.workers import Start, starting

ALIASES = [alias for alias in ("default", "postgres", "mariadb") if alias in settings.DATABASES]
ROW_LOCKING = [alias for alias in ALIASES if alias != "default"]
OTHER_PATHS = ("postgres-portable", "postgres-kept-plans")
"""PostgreSQL without the single statement, and with plans of it that are kept as in a worker's session, in
the suites that hold for every path."""
EVERY_PATH = ("contract", "concurrency")


def pytest_report_header() -> list[str]:
    return [f"databases: {', '.join(ALIASES)}", *settings.MISSING_SERVICES]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, aliases in (("using", ALIASES), ("row_locking", ROW_LOCKING)):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, [*aliases, *_other_paths(metafunc)], indirect=True)


def _other_paths(metafunc: pytest.Metafunc) -> list[str]:
    folder = metafunc.definition.path.parent.name
    return [*OTHER_PATHS] if folder in EVERY_PATH and "postgres" in ALIASES else []


@contextmanager
def _on(name: str) -> Iterator[str]:
    """The alias, with the path that the name asks for."""
    alias, _, path = name.partition("-")
    given = {**settings.RELIABLE_MESSAGING, **({"FAST_PATH": False} if path == "portable" else {})}
    kept = keeping_plans(alias) if path == "kept-plans" else nullcontext()
    with override_settings(RELIABLE_MESSAGING=given), kept:
        yield alias
    wipe(alias)


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment: None, django_db_blocker: Any) -> Iterator[None]:
    """Every database, whatever is tested: pytest-django would make only those named in its marks."""
    with django_db_blocker.unblock():
        made = setup_databases(verbosity=0, interactive=False, aliases=set(settings.DATABASES))
    yield
    with django_db_blocker.unblock():
        connections.close_all()
        teardown_databases(made, verbosity=0)


@pytest.fixture
def using(request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """Each database in turn, with real commits. Wiping a few tables is far quicker than a flush."""
    with django_db_blocker.unblock(), _on(request.param) as alias:
        yield alias


@pytest.fixture
def row_locking(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any
) -> Iterator[str]:
    """The databases that lock rows: where two sessions can really meet."""
    with django_db_blocker.unblock(), _on(request.param) as alias:
        yield alias


@pytest.fixture
def database_access(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """For tests that choose the database themselves."""
    with django_db_blocker.unblock():
        yield
        for alias in ALIASES:
            wipe(alias)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start worker processes; none of them outlives the test, and a failing test shows their output."""
    with starting(tmp_path / "workers.log") as start_worker:
        yield start_worker
