"""What a deploy does with the jobs of the code: ``sync_jobs``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

from django.core.management import call_command

from reliable_messaging import jobs
from reliable_messaging.jobs.declared import forget, periodic
from reliable_messaging.models import Job
from tests.workers import handling

TOPIC = "test.nightly"


def run(using: str, *options: str) -> list[str]:
    out = StringIO()
    call_command("sync_jobs", "--database", using, *options, stdout=out)
    return out.getvalue().splitlines()


@contextmanager
def declaring(using: str, cron: str = "30 2 * * *", name: str = "nightly", **options: Any) -> Iterator[None]:
    """The code has a job, until the block ends."""

    def work(message: Any) -> None:
        pass

    try:
        periodic(cron, name=name, using=using, **options)(work)
        with handling(f"test.{name}", work):
            yield
    finally:
        forget(work)


def stored(using: str, name: str = "nightly") -> Job:
    return Job._base_manager.using(using).get(pk=name)


def test_what_the_code_declares_is_created_and_updated(using: str) -> None:
    """One line for each; a second time there is nothing to do."""
    with declaring(using):
        assert run(using) == ["Created the job 'nightly'."]
        assert run(using) == ["Nothing to do."]
    assert (stored(using).topic, stored(using).cron) == (TOPIC, "30 2 * * *")
    with declaring(using, "0 4 * * *"):
        assert run(using) == ["Updated the job 'nightly'."]
    assert stored(using).cron == "0 4 * * *"


def test_each_job_has_its_line(using: str) -> None:
    """By name, those that are made before those that are changed."""
    with declaring(using, name="report"):
        run(using)
    with declaring(using, "0 4 * * *", name="report"), declaring(using, name="b"), declaring(using, name="a"):
        assert run(using) == ["Created the job 'a'.", "Created the job 'b'.", "Updated the job 'report'."]


def test_what_somebody_has_changed_stays(using: str) -> None:
    """It says so, with the columns, while it updates the others; ``--overwrite`` undoes it."""
    with declaring(using):
        run(using)
    Job._base_manager.using(using).update(cron="0 5 * * *", priority=1)
    with declaring(using, "0 4 * * *", priority=-1, payload={"full": True}):
        assert run(using) == [
            "Updated the job 'nightly'.",
            "Kept the job 'nightly' as somebody has changed it: priority, cron.",
        ]
        assert (stored(using).cron, stored(using).payload) == ("0 5 * * *", '{"full":true}')
        assert run(using, "--overwrite") == ["Updated the job 'nightly'."]
    assert (stored(using).cron, stored(using).priority) == ("0 4 * * *", -1)


def test_a_job_that_was_there_before_stays_too(using: str) -> None:
    """The code has never said anything of it, so all of it is somebody's own."""
    jobs.create_or_update("nightly", topic=TOPIC, cron="0 5 * * *", using=using)
    with declaring(using):
        assert run(using) == ["Kept the job 'nightly' as somebody has changed it: cron."]
    assert stored(using).cron == "0 5 * * *"


def test_only_prune_disables_what_is_gone(using: str) -> None:
    """Not those that were never the code's. When the code has it again, it is enabled again."""
    jobs.create_or_update("by-hand", topic=TOPIC, cron="0 5 * * *", using=using)
    with declaring(using):
        run(using)
    assert run(using) == ["Nothing to do."]
    assert stored(using).enabled
    assert run(using, "--prune") == ["Disabled the job 'nightly', which the code has no longer."]
    assert run(using, "--prune") == ["Nothing to do."]
    assert not stored(using).enabled
    assert stored(using, "by-hand").enabled
    with declaring(using):
        assert run(using, "--prune") == ["Updated the job 'nightly'."]
    assert stored(using).enabled


def test_a_job_of_another_database_is_left_alone(row_locking: str) -> None:
    """Each database has its own."""
    with declaring("default"):
        assert run(row_locking) == ["Nothing to do."]
    assert not Job._base_manager.using(row_locking).exists()
