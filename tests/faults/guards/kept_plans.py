"""Guards of plans that are kept."""

from __future__ import annotations

from .guard import Guard

FILE = "workqueue/kept_plans.py"
TESTS = "tests/integration/test_kept_plans.py"
GOES_BY_INDEXES = f"{TESTS}::test_the_plan_goes_by_indexes_whatever_the_table_was_like"

GUARDS = [
    Guard(
        name="plan-no-seqscan",
        file=FILE,
        removed="""    "enable_seqscan": "'off'",\n""",
        put_instead="",
        test=f"{GOES_BY_INDEXES}[postgres-analysed while empty]",
        what_happens="a plan that was made for an empty table reads all of the full one",
    ),
    Guard(
        name="plan-no-nested-loop",
        file=FILE,
        removed="""    "enable_nestloop": "'off'",\n""",
        put_instead="",
        test=f"{TESTS}::test_ids_are_looked_up_however_small_the_table_was[postgres-500]",
        what_happens="to acknowledge a batch, the server compares each of its ids with each other",
    ),
    Guard(
        name="plan-ids-looked-up",
        file="workqueue/single_statement.py",
        removed='f"item.id = ANY(%s::uuid[]) AND item.id = ours.id AND',
        put_instead='f"%s::uuid[] IS NOT NULL AND item.id = ours.id AND',
        test=f"{TESTS}::test_ids_are_looked_up_however_small_the_table_was[postgres-50]",
        what_happens="a plan that was made for a small table walks through all ids of a large one",
    ),
    Guard(
        name="plan-binding",
        file=FILE,
        removed='        return\n    if hasattr(session, "pgconn")',
        put_instead='        pass\n    if hasattr(session, "pgconn")',
        test=f"{TESTS}::test_with_server_side_binding_nothing_is_kept[postgres]",
        what_happens="with server-side binding, each look reads the whole table",
    ),
    Guard(
        name="plan-not-compiled",
        file=FILE,
        removed="""    "jit": "'off'",\n""",
        put_instead="",
        test=f"{TESTS}::test_a_kept_plan_is_not_compiled[postgres]",
        what_happens="the server compiles the statement at each claim",
    ),
    Guard(
        name="plan-generic",
        file=FILE,
        removed="""    "plan_cache_mode": "'force_generic_plan'",\n""",
        put_instead="",
        test=f"{TESTS}::test_an_exchange_is_planned_once[postgres]",
        what_happens="the server plans each claim anew",
    ),
    Guard(
        name="plan-refused",
        file=FILE,
        removed='REFUSALS = {"0A000", "26000", "42P05"}',
        put_instead='REFUSALS = {"26000", "42P05"}',
        test=f"{TESTS}::test_a_migration_that_changes_a_column_stops_nobody[postgres]",
        what_happens="after a migration a worker claims nothing more",
    ),
    Guard(
        name="plan-gone",
        file=FILE,
        removed='REFUSALS = {"0A000", "26000", "42P05"}',
        put_instead='REFUSALS = {"0A000", "42P05"}',
        test=f"{TESTS}::test_a_statement_that_somebody_took_away_stops_nobody[postgres]",
        what_happens="behind a pooler that hands out sessions silently, a worker claims nothing more",
    ),
    Guard(
        name="plan-blamed",
        file=FILE,
        removed="not in REFUSALS:\n                raise\n",
        put_instead="not in REFUSALS:\n                pass\n",
        test=f"{TESTS}::test_an_error_of_the_statement_itself_is_raised[postgres]",
        what_happens="any error of the statement is made a second time",
    ),
    Guard(
        name="plan-autocommit",
        file=FILE,
        removed=" and not connection.in_atomic_block:",
        put_instead=":",
        test=f"{TESTS}::test_nothing_is_prepared_inside_a_transaction[postgres]",
        what_happens="a refused plan breaks the transaction of whoever claims",
    ),
    Guard(
        name="plan-of-this-session",
        file="workqueue/own_session.py",
        removed="WHERE pg_backend_pid() = {pid}",
        put_instead="",
        test=f"{TESTS}::test_behind_pgbouncer_nothing_is_kept[postgres]",
        what_happens="a session of PgBouncer's keeps our settings for whoever gets it next",
    ),
]
