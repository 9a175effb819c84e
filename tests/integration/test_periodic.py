"""``@periodic``: jobs that the code declares, and what becomes of changes that somebody made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import transaction

from reliable_messaging import handler, jobs, periodic, with_lease
from reliable_messaging.exceptions import RegistrationError
from reliable_messaging.jobs import declared
from reliable_messaging.models import Job
from reliable_messaging.registry import Handler, registry
from tests.sessions import together

TOPIC = "test.periodic"


def act(message: Any) -> None:
    pass


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "_declarations", {})


@contextmanager
def handled(function: Callable[[Any], Any], *topics: str) -> Iterator[None]:
    found = [Handler(topic=topic, function=function) for topic in topics]
    for one in found:
        registry.add(one)
    try:
        yield
    finally:
        for one in found:
            registry.remove(one)


@pytest.fixture
def known() -> Iterator[None]:
    with handled(act, TOPIC):
        yield


def declare(using: str, cron: str = "0 3 * * *", **options: Any) -> None:
    """What the code says from now on."""
    declared._declarations.clear()
    periodic(cron, **{"using": using, **options})(act)


def row(using: str, name: str = TOPIC) -> Job:
    return Job._base_manager.using(using).get(pk=name)


def by_hand(using: str, **values: Any) -> None:
    """As the admin does it."""
    with transaction.atomic(using=using):
        jobs.storing.store(using, {"name": TOPIC, **values})


def test_a_declared_job_is_created_once(using: str, known: None) -> None:
    """Named by its topic unless it is given a name, and updated when the code changes."""
    declare(using, payload={"a": 1})
    assert jobs.sync(using=using).created == [TOPIC]
    assert (row(using).topic, row(using).cron, row(using).payload) == (TOPIC, "0 3 * * *", '{"a":1}')
    assert jobs.sync(using=using) == jobs.Synced()
    declare(using, cron="0 4 * * *", misfire_grace=90)
    assert jobs.sync(using=using).updated == [TOPIC]
    assert (row(using).cron, row(using).payload) == ("0 4 * * *", "null")
    assert row(using).misfire_grace.total_seconds() == 90


def test_several_jobs_may_send_one_topic(using: str, known: None) -> None:
    """Each with a name of its own."""
    declare(using, name="early", payload=1)
    periodic("0 22 * * *", name="late", payload=2, using=using)(act)
    assert jobs.sync(using=using).created == ["early", "late"]
    assert {row(using, name).topic for name in ("early", "late")} == {TOPIC}


def test_the_order_of_the_decorators_does_not_matter(using: str) -> None:
    """And another one may stand between them."""

    def wrapper(function: Any) -> Any:
        @wraps(function)
        def call(message: Any) -> Any:
            return function(message)

        return call

    @periodic("* * * * *", using=using)
    @handler("test.above")
    def above(message: Any) -> None: ...

    @handler("test.below")
    @periodic("* * * * *", using=using)
    def below(message: Any) -> None: ...

    @handler("test.between")
    @with_lease("one-at-a-time")
    @wrapper
    @periodic("* * * * *", using=using)
    def between(message: Any) -> None: ...

    try:
        assert jobs.sync(using=using).created == ["test.above", "test.below", "test.between"]
    finally:
        for topic in ("test.above", "test.below", "test.between"):
            found = registry.find(topic)
            assert found is not None
            registry.remove(found)


def test_a_module_that_is_imported_twice_declares_once(using: str, known: None) -> None:
    """As test runners and autoreload do."""
    declare(using)
    periodic("0 3 * * *", using=using)(act)
    assert len(declared.declarations()) == 1


def test_what_somebody_changed_by_hand_stays(
    using: str, known: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Column by column, with a warning; also when the code changes that very column."""
    declare(using, cron="0 3 * * *", priority=0)
    jobs.sync(using=using)
    by_hand(using, cron="30 3 * * *")
    synced = jobs.sync(using=using)
    assert (synced.updated, synced.kept) == ([], {TOPIC: ["cron"]})
    declare(using, cron="0 5 * * *", priority=1)
    synced = jobs.sync(using=using)
    assert (synced.updated, synced.kept) == ([TOPIC], {TOPIC: ["cron"]})
    assert (row(using).cron, row(using).priority) == ("30 3 * * *", 1)
    by_hand(using, cron="0 5 * * *")  # as the code says: from now on it follows the code again
    assert jobs.sync(using=using).kept == {}
    declare(using, cron="0 6 * * *", priority=1)
    jobs.sync(using=using)
    assert row(using).cron == "0 6 * * *"


def test_a_job_that_somebody_disabled_stays_disabled(using: str, known: None) -> None:
    """A new deploy does not switch on what was switched off at night."""
    declare(using)
    jobs.sync(using=using)
    jobs.disable(TOPIC, using=using)
    declare(using, cron="0 4 * * *")
    assert jobs.sync(using=using).kept == {TOPIC: ["enabled"]}
    assert not row(using).enabled


def test_overwrite_makes_it_as_the_code_says(using: str, known: None) -> None:
    """If that is asked for."""
    declare(using)
    jobs.sync(using=using)
    by_hand(using, cron="30 3 * * *", enabled=False)
    assert jobs.sync(using=using, overwrite=True) == jobs.Synced(updated=[TOPIC])
    assert (row(using).cron, row(using).enabled) == ("0 3 * * *", True)


def test_a_job_that_was_there_before_the_code_knew_it_stays_as_it_is(using: str, known: None) -> None:
    """It was made by hand. What is the same is the code's from now on."""
    jobs.create_or_update(TOPIC, topic=TOPIC, cron="30 3 * * *", using=using)
    declare(using)
    assert jobs.sync(using=using).kept == {TOPIC: ["cron"]}
    declare(using, priority=1)
    assert jobs.sync(using=using).updated == [TOPIC]
    assert (row(using).cron, row(using).priority) == ("30 3 * * *", 1)


def test_only_prune_disables_what_the_code_has_no_longer(using: str, known: None) -> None:
    """An older process that starts in the middle of a deploy must not. What was made by hand stays too; and
    what comes back is enabled again."""
    jobs.create_or_update("by-hand", topic=TOPIC, cron="* * * * *", using=using)
    declare(using, name="gone")
    jobs.sync(using=using)
    declare(using, name="here")
    assert jobs.sync(using=using).pruned == []
    assert row(using, "gone").enabled
    assert jobs.sync(using=using, prune=True).pruned == ["gone"]
    assert not row(using, "gone").enabled
    assert row(using, "by-hand").enabled
    assert jobs.sync(using=using, prune=True).pruned == []
    declare(using, name="gone")
    jobs.sync(using=using)
    assert row(using, "gone").enabled


def test_an_update_keeps_what_is_due(using: str, known: None) -> None:
    """A deploy just when the job is due."""
    declare(using)
    jobs.sync(using=using)
    due = row(using).next_run_at
    declare(using, payload="new")
    jobs.sync(using=using)
    assert row(using).next_run_at == due


def test_each_database_gets_its_own(using: str, known: None) -> None:
    """A scheduler of one database makes no jobs of another: each would run them."""
    declare("other")
    assert jobs.sync(using=using) == jobs.Synced()


def test_many_schedulers_may_start_at_once(using: str, known: None) -> None:
    """One of them makes each job."""
    declare(using)
    synced = together([lambda: jobs.sync(using=using)] * 4)
    assert sum(len(one.created) for one in synced) >= 1
    assert row(using).declared is not None


def test_bad_declarations_are_refused_where_they_stand() -> None:
    """At import, and not at night."""
    for wrong in ({"cron": "61 * * * *"}, {"cron": "0 0 30 2 *"}):
        with pytest.raises(RegistrationError, match="@periodic"):
            periodic(**wrong)
    with pytest.raises(RegistrationError, match="Atlantis"):
        periodic("* * * * *", timezone="Europe/Atlantis")
    with pytest.raises(RegistrationError, match="JSON"):
        periodic("* * * * *", payload={1, 2})
    with pytest.raises(RegistrationError, match="expression is missing"):
        periodic(act)  # type: ignore[type-var]


def test_a_function_that_handles_nothing_is_told_of(using: str) -> None:
    """By a system check; who skips those is told by an error."""
    declare(using)
    assert [found.id for found in run_checks() if "periodic" in found.msg] == ["reliable_messaging.E010"]
    with pytest.raises(RegistrationError, match=r"put @handler\(...\) there too"):
        jobs.sync(using=using)


def test_a_function_of_several_topics_must_say_which(using: str) -> None:
    """Otherwise nobody knows what to send."""
    with handled(act, "test.one", "test.two"):
        declare(using)
        assert [found.id for found in run_checks() if "periodic" in found.msg] == ["reliable_messaging.E010"]
        declare(using, topic="test.two")
        assert not [found for found in run_checks() if "periodic" in found.msg]
        assert jobs.sync(using=using).created == ["test.two"]


def test_one_name_is_one_job(using: str, known: None) -> None:
    """Two declarations of it would undo each other at each start."""
    declare(using)
    periodic("0 5 * * *", topic=TOPIC, using=using)(act)
    if using == "default":  # said, or not
        periodic("0 6 * * *", topic=TOPIC)(act)
    assert [found.id for found in run_checks() if TOPIC in found.msg] == ["reliable_messaging.E011"]


def test_two_above_one_function_are_told_of(known: None) -> None:
    """Two schedules need two names. None of them is lost without a word."""
    periodic("0 1 * * *")(periodic("0 2 * * *")(act))
    assert [found.id for found in run_checks() if TOPIC in found.msg] == ["reliable_messaging.E011"]


def test_a_topic_that_nobody_handles_is_told_of() -> None:
    """It may be handled elsewhere; most likely it is misspelled."""
    periodic("0 1 * * *", topic="test.perodic")(act)
    assert [found.id for found in run_checks() if "perodic" in found.msg] == ["reliable_messaging.W003"]
