"""Plans that are kept: one for all tables, and none where they could do harm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connections, transaction
from psycopg import ConnectionInfo

from reliable_messaging import enqueue, enqueue_many, outbox
from reliable_messaging.message import OutgoingMessage
from reliable_messaging.models import OutboxMessage
from reliable_messaging.session import private_connection
from reliable_messaging.workers.options import WorkerOptions
from reliable_messaging.workers.worker import OutboxWorker
from reliable_messaging.workqueue import Ack, kept_plans
from tests.sessions import in_session, keeping_plans

TABLE = OutboxMessage._meta.db_table
MANY = 3_000

pytestmark = pytest.mark.skipif("postgres" not in settings.DATABASES, reason="only PostgreSQL has them")


@pytest.fixture(params=["postgres"])
def postgres(request: pytest.FixtureRequest, database_access: None) -> str:
    return str(request.param)


@pytest.fixture
def kept(postgres: str) -> Iterator[str]:
    with keeping_plans(postgres):
        yield postgres


def ask(sql: str, params: Any = None) -> list[Any]:
    with connections["postgres"].cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall()) if cursor.description else []


def fill(count: int = MANY) -> None:
    enqueue_many([OutgoingMessage(topic="a.topic") for _ in range(count)], using="postgres")


def exchange(limit: int = 5) -> list[Any]:
    """Claim, and acknowledge together with the next claim."""
    queue = outbox.queue.using("postgres")
    lane = queue.look(("default",)).lanes[0]
    first = queue.exchange([], lanes=[lane], limit=limit).claimed
    assert queue.ack(first) == []
    return first


def prepared(like: str = "%due AS%") -> list[tuple[str, str, int, int]]:
    return ask(
        "SELECT name, statement, generic_plans, custom_plans FROM pg_prepared_statements "
        "WHERE statement LIKE %s ORDER BY name",
        [like],
    )


def plan_of(name: str, statement: str) -> str:
    count = max(int(number) for number in re.findall(r"\$(\d+)", statement))
    rows = ask(f'EXPLAIN EXECUTE "{name}" ({", ".join(["NULL"] * count)})')
    return "\n".join(row[0] for row in rows)


def test_an_exchange_is_planned_once(kept: str) -> None:
    """To plan it takes as long as to execute it, and a worker executes it some hundred times a second."""
    fill(20)
    for _ in range(4):
        exchange()
    [(_, _, generic, custom)] = prepared()
    assert (generic, custom) == (4, 0)


@pytest.mark.parametrize("state", ["never analysed", "analysed while empty", "full", "in no order"])
def test_the_plan_goes_by_indexes_whatever_the_table_was_like(kept: str, state: str) -> None:
    """A plan that was made for an empty table would else read all of the full one, for as long as the
    worker lives."""
    if state == "analysed while empty":
        ask(f"VACUUM ANALYZE {TABLE}")
    if state in ("full", "in no order"):
        fill()
        if state == "in no order":
            ask(f"UPDATE {TABLE} SET due_at = due_at - random() * interval '10 days'")
        ask(f"ANALYZE {TABLE}")
    enqueue("a.topic", using="postgres")
    exchange(1)  # planned now
    [(name, statement, *_)] = prepared()
    plan = plan_of(name, statement)
    assert re.search(r"Index Scan using rm_outbox_claim.*\n\s*Index Cond: \(", plan), plan
    assert_ids_are_looked_up(plan)


def assert_ids_are_looked_up(plan: str) -> None:
    scans = re.findall(rf"Index Scan (?:using|on) {TABLE}_pkey.*\n\s*(.*)", plan)
    assert scans, plan
    assert all(condition.startswith("Index Cond: (id = ") for condition in scans), plan
    # A nested loop would compare each of a batch with each other of it.
    for word in ("Seq Scan", "Sort", "Nested Loop"):
        assert word not in plan, plan


@pytest.mark.parametrize("count", [1, 10, 50, 200, 500])
def test_ids_are_looked_up_however_small_the_table_was(kept: str, count: int) -> None:
    """By every statement: with claims, with acknowledgements, and with both. A small table is read faster
    from its first id to its last, and a plan that does so would go on when the table has grown."""
    fill(count)
    ask(f"VACUUM ANALYZE {TABLE}")
    queue = outbox.queue.using(kept)
    lane = queue.look(("default",)).lanes[0]
    first = queue.exchange([], lanes=[lane], limit=1).claimed
    second = queue.exchange([Ack(item=item) for item in first], lanes=[lane], limit=1).claimed
    queue.ack(second or queue.claim())
    found = prepared("%reliable_messaging_outboxmessage%")
    assert len(found) == (3 if count > 1 else 2)
    for name, statement, *_ in found:
        assert_ids_are_looked_up(plan_of(name, statement))


def test_a_kept_plan_is_not_compiled(kept: str) -> None:
    """It is made for any number of rows, so it looks dear: with JIT each execution would take longer than
    a thousand of them."""
    assert ask("SHOW jit") == [("off",)]


def test_a_migration_that_changes_a_column_stops_nobody(kept: str) -> None:
    """The plan would answer with another type, and the server refuses it: then it is planned anew."""
    fill(20)
    before = exchange()
    in_session(alter, "text").result(timeout=30)
    try:
        after = exchange()
    finally:
        in_session(alter, OutboxMessage._meta.get_field("topic").db_type(connections[kept])).result(
            timeout=30
        )
    assert len(before) == len(after) == 5
    assert {message.topic for message in after} == {"a.topic"}


def alter(column_type: str) -> None:
    ask(f"ALTER TABLE {TABLE} ALTER COLUMN topic TYPE {column_type}")


def test_a_statement_that_somebody_took_away_stops_nobody(kept: str) -> None:
    """As behind a pooler that hands out sessions without saying so: the one that has it is another's now."""
    fill(20)
    exchange()
    ask("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")  # so that the driver does not notice
    assert len(exchange()) == 5


def test_an_error_of_the_statement_itself_is_raised(kept: str) -> None:
    """And not tried a second time as if the plan were to blame."""
    fill(1)
    exchange(1)
    with pytest.raises(Exception, match="division"):
        kept_plans.execute(connections[kept], "SELECT 1 / %s::int", [0])
    assert connections[kept].reliable_messaging_keeps_plans is not None  # type: ignore[attr-defined]


def test_nothing_is_prepared_inside_a_transaction(kept: str) -> None:
    """A refusal would break the caller's transaction, and could not be tried again."""
    fill(5)
    with transaction.atomic(using=kept):
        assert kept_plans.execute(connections[kept], "SELECT %s::int", [1]) == [(1,)]
        assert ask("SELECT count(*) FROM pg_prepared_statements") == [(0,)]


def test_a_new_session_starts_from_nothing(kept: str) -> None:
    """What was prepared in the old one is not known to the new."""
    fill(20)
    exchange()
    connections[kept].close()
    assert len(exchange()) == 5


def test_only_sessions_of_a_workers_own_keep_plans(postgres: str) -> None:
    """Not those in which handlers or a web request run statements of theirs: the settings would be in force
    for them too."""
    worker = OutboxWorker(WorkerOptions(database="postgres"))
    worker.waiter.close()

    def seqscan_of_worker() -> list[Any]:
        with private_connection("postgres", worker.session_limits):
            return ask("SHOW enable_seqscan")

    assert in_session(seqscan_of_worker).result(timeout=30) == [("off",)]
    assert in_session(ask, "SHOW enable_seqscan").result(timeout=30) == [("on",)]
    assert worker._pool._limits.keeps_plans is False


def test_behind_pgbouncer_nothing_is_kept(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the driver knows another number for the session, which will be somebody else's soon."""

    def keep() -> list[Any]:
        connection: Any = connections["postgres"]
        connection.ensure_connection()
        monkeypatch.setattr(ConnectionInfo, "backend_pid", 1)
        kept_plans.keep_plans(connection)
        enqueue("a.topic", using="postgres")
        assert len(exchange(1)) == 1
        assert prepared() == []
        return ask("SHOW jit")

    assert in_session(ask, "SHOW jit").result(timeout=30) == [("on",)]
    assert in_session(keep).result(timeout=30) == [("on",)]


def test_with_server_side_binding_nothing_is_kept(postgres: str) -> None:
    """Then Django's own statements have parameters too, and a plan for any value of theirs could use no
    partial index: each look would read the whole table."""

    def keep() -> list[Any]:
        connection: Any = connections["postgres"]
        options = {**connection.settings_dict["OPTIONS"], "server_side_binding": True}
        connection.settings_dict = {**connection.settings_dict, "OPTIONS": options}
        connection.ensure_connection()
        kept_plans.keep_plans(connection)
        enqueue("a.topic", using="postgres")
        assert len(exchange(1)) == 1
        return ask("SHOW plan_cache_mode")

    assert in_session(keep).result(timeout=30) == [("auto",)]
