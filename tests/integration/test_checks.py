"""System checks: what would go wrong later is said at start-up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.checks import Tags, run_checks
from django.db import connections
from django.test import override_settings

from reliable_messaging.exceptions import HandlerImportError, RegistrationError, SettingsError
from reliable_messaging.registry import DEAD_LETTER_PREFIX, discover_handlers, handler, on_dead
from tests.workers import handling


def ids() -> dict[str, str]:
    found = [m for m in run_checks(databases=()) if str(m.id).startswith("reliable_messaging.")]
    return {str(message.id).removeprefix("reliable_messaging."): message.msg for message in found}


def test_the_test_settings_are_clean() -> None:
    """Nothing to complain about."""
    assert ids() == {}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"LEESE": 60}, "'LEESE' is not a setting"),
        ({"LEASE": "60"}, "must be seconds or a timedelta"),
        ({"LEASE": -1}, "must be positive"),
        ({"BATCH_SIZE": 0}, "at least 1"),
        ({"MAX_ATTEMPTS": 10**10}, "1,000,000 at most"),
        ({"OUTBOX_RETENTION": timedelta.max}, "None is for ever"),
        ({"LEASE": 1e12}, "a hundred years at most"),
        ({"BATCH_SIZE": True}, "at least 1"),
        ({"ENABLED": "no"}, "True or False"),
        ({"SERVICE_NAME": 3}, "must be a text"),
        ([], "must be a dict"),
    ],
)
def test_wrong_settings_are_named(values: Any, words: str) -> None:
    """Unknown names, wrong types and senseless values."""
    with override_settings(RELIABLE_MESSAGING=values):
        assert words in ids()["E001"]


def test_a_wrong_setting_is_refused_when_read() -> None:
    """Also where checks are not run."""
    from reliable_messaging.conf import get_settings

    with override_settings(RELIABLE_MESSAGING={"LEASE": "soon"}), pytest.raises(SettingsError, match="LEASE"):
        get_settings()


def test_a_lease_too_short_for_renewal() -> None:
    """Below a second no renewal can be relied on."""
    with override_settings(RELIABLE_MESSAGING={"LEASE": 0.5}):
        assert "too short" in ids()["E002"]


def test_poll_limits_the_wrong_way_round() -> None:
    """POLL_MIN must not be greater than POLL_MAX."""
    with override_settings(RELIABLE_MESSAGING={"POLL_MIN": 9, "POLL_MAX": 1}):
        assert "E006" in ids()


def test_a_wakeup_database_that_is_not_there() -> None:
    """Workers would try in vain to listen there, for ever."""
    with override_settings(RELIABLE_MESSAGING={"WAKEUP_DATABASE": "nowhere"}):
        assert "nowhere" in ids()["E008"]
    with override_settings(RELIABLE_MESSAGING={"WAKEUP_DATABASE": "other"}):
        assert "E008" not in ids()


def test_two_handlers_for_one_topic() -> None:
    """Which of them would run? Neither silently."""
    with handling("test.rivals", len), handling("test.rivals", print):
        assert "builtins.len" in ids()["E003"]
        assert "builtins.print" in ids()["E003"]


def test_two_handlers_of_one_name_in_one_module() -> None:
    """The second does not silently replace the first; importing the module again is no second one."""

    def make() -> Any:
        def handle(message: object) -> None: ...

        return handle

    def make_other() -> Any:
        def handle(message: object) -> None: ...

        return handle

    other = make_other()
    other.__qualname__ = make().__qualname__
    with handling("test.rivals", make()), handling("test.rivals", make()):
        assert ids() == {}
        with handling("test.rivals", other):
            assert "several handlers" in ids()["E003"]


def test_callables_without_a_name_can_be_handlers() -> None:
    """A partial has none; it still shows up by its type."""
    from functools import partial

    with handling("test.rivals", partial(print, 1)), handling("test.rivals", partial(print, 2)):
        assert "functools.partial" in ids()["E003"]


def test_a_dead_letter_callback_for_a_topic_without_a_handler() -> None:
    """Perhaps a slip of the pen: it would never be called."""
    with handling(DEAD_LETTER_PREFIX + "test.typo", len):
        assert "test.typo" in ids()["W002"]
        with handling("test.typo", len):
            assert ids() == {}


def test_a_decorator_without_its_topic_is_explained() -> None:
    """``@handler`` instead of ``@handler("topic")``."""

    def reserve_stock(message: object) -> None: ...

    for decorator in (handler, on_dead):
        with pytest.raises(RegistrationError, match=r'"some.topic".*reserve_stock'):
            decorator(reserve_stock)  # type: ignore[arg-type]


def test_without_time_zones() -> None:
    """USE_TZ = False is refused."""
    with override_settings(USE_TZ=False):
        assert "USE_TZ" in ids()["E005"]


def test_sqlite_without_immediate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning: it works, but fails with 'database is locked' under load."""
    monkeypatch.setitem(connections["default"].settings_dict["OPTIONS"], "transaction_mode", None)
    assert "IMMEDIATE" in ids()["W001"]


def test_another_isolation_level(row_locking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything but READ COMMITTED is an error, None on MariaDB too: that is the server's REPEATABLE READ."""
    options = connections[row_locking].settings_dict["OPTIONS"]
    levels = {"mysql": ("repeatable read", None), "postgresql": (3, 4)}[connections[row_locking].vendor]
    for level in levels:
        monkeypatch.setitem(options, "isolation_level", level)
        assert "READ COMMITTED" in ids()["E004"]
    allowed = {"mysql": "READ COMMITTED", "postgresql": 2}[connections[row_locking].vendor]
    monkeypatch.setitem(options, "isolation_level", allowed)
    assert ids() == {}


def test_a_zone_of_a_database_that_has_none(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Django would write local times there, beside the database's own in UTC. PostgreSQL has instants,
    whatever the zone."""
    connection = connections[using]
    monkeypatch.setitem(connection.settings_dict, "TIME_ZONE", "Europe/Berlin")
    found = ids()
    if connection.features.supports_timezones:
        assert "E009" not in found
    else:
        assert "no zone" in found["E009"]
    monkeypatch.setitem(connection.settings_dict, "TIME_ZONE", "UTC")
    assert "E009" not in ids()


def server_ids(using: str) -> set[str]:
    return {str(m.id) for m in run_checks(tags=[Tags.database], databases=[using])}


def test_the_server_is_asked_where_a_database_is_checked(using: str) -> None:
    """``migrate`` and ``check --database`` find nothing wrong here."""
    assert not {name for name in server_ids(using) if name.startswith("reliable_messaging")}


def test_a_server_without_skip_locked(row_locking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old MariaDB servers cannot pass over locked rows: said before a worker fails."""
    features = connections[row_locking].features
    monkeypatch.setitem(features.__dict__, "has_select_for_update_skip_locked", False)
    assert "reliable_messaging.E007" in server_ids(row_locking)


@pytest.mark.skipif("postgres" not in settings.DATABASES, reason="PostgreSQL is not tested here")
@pytest.mark.django_db(databases=["postgres"], transaction=True)
def test_a_server_whose_default_isolation_is_another() -> None:
    """PostgreSQL takes it from the server, the database or the role when Django sets none."""
    with connections["postgres"].cursor() as cursor:
        cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert "reliable_messaging.E004" in server_ids("postgres")
    connections["postgres"].close()


def test_a_handlers_module_that_fails_is_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app, the error and its cause; nothing is half discovered in silence."""
    app = tmp_path / "brokenapp"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "handlers.py").write_text("import nothing_of_that_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    from django.apps import AppConfig, apps

    config = AppConfig.create("brokenapp")
    monkeypatch.setattr(apps, "get_app_configs", lambda: [config])
    with pytest.raises(HandlerImportError, match="brokenapp.handlers.*nothing_of_that_name"):
        discover_handlers()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": ""}, "empty"),
        ({"topic": "a\n"}, "control"),
        ({"queue": ""}, "queue is empty"),
        ({"timeout": 0}, "timeout"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"backoff": 5}, "backoff"),
    ],
)
def test_a_wrong_handler_declaration_is_refused(options: dict[str, Any], words: str) -> None:
    """At import time, where the mistake is."""
    with pytest.raises(RegistrationError, match=words):
        handler(**{"topic": "x", **options})


def test_a_handler_must_be_callable() -> None:
    """A value is refused."""
    with pytest.raises(RegistrationError, match="callable"):
        handler("x")("not a function")  # type: ignore[type-var]


def test_a_generator_is_refused() -> None:
    """Calling it would run nothing, and the message would be done."""

    def work(message: object) -> Iterator[None]:
        yield

    with pytest.raises(RegistrationError, match="Remove the yield"):
        handler("checks.generator")(work)
