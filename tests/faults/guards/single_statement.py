"""Guards of the statement that acknowledges and claims at once."""

from __future__ import annotations

from .guard import Guard

FILE = "workqueue/single_statement.py"
CLAIM = "tests/contract/test_claim.py"
SETTLE = "tests/contract/test_settle.py"
RACES = "tests/concurrency/test_races.py"
HARD = "tests/integration/test_hard_cases.py"
SINCE = f"{CLAIM}::test_a_claim_compares_again_what_the_look_saw"

GUARDS = [
    Guard(
        name="at-once-status",
        file=FILE,
        removed="AND status = {Status.READY.value} AND crashes = 0 ",
        put_instead="AND crashes = 0 ",
        test=f"{SINCE}[outbox-postgres-taken]",
        what_happens="what another worker holds is claimed a second time",
    ),
    Guard(
        name="at-once-no-suspects",
        file=FILE,
        removed="{Status.READY.value} AND crashes = 0 ",
        put_instead="{Status.READY.value} ",
        test=f"{SINCE}[outbox-postgres-a suspect]",
        what_happens="what killed one worker takes a batch of innocent messages with it",
    ),
    Guard(
        name="at-once-due",
        file=FILE,
        removed="priority = %s AND due_at <= {now} ",
        put_instead="priority = %s ",
        test=f"{SINCE}[outbox-postgres-put off]",
        what_happens="a message runs before its time, and a retry without its pause",
    ),
    Guard(
        name="at-once-expiry",
        file=FILE,
        removed="AND (expires_at IS NULL OR expires_at > {now}) ",
        put_instead="",
        test=f"{SINCE}[outbox-postgres-expired]",
        what_happens="an expired message runs",
    ),
    Guard(
        name="at-once-claimable",
        file=FILE,
        removed="WHERE {claimable} AND",
        put_instead="WHERE ({claimable} OR true) AND",
        test=f"{SINCE}[outbox-postgres-not claimable]",
        what_happens="a message of a stream is claimed out of its order",
    ),
    Guard(
        name="at-once-queue",
        file=FILE,
        removed="AND queue = %s AND priority = %s",
        put_instead="AND (queue = %s OR true) AND priority = %s",
        test=f"{SINCE}[outbox-postgres-another queue]",
        what_happens="a worker takes messages of queues that it does not serve",
    ),
    Guard(
        name="at-once-band",
        file=FILE,
        removed="AND queue = %s AND priority = %s",
        put_instead="AND queue = %s AND (priority = %s OR true)",
        test=f"{SINCE}[outbox-postgres-another band]",
        what_happens="low priority goes before high",
    ),
    Guard(
        name="at-once-lock",
        file=FILE,
        removed="LIMIT %s FOR UPDATE SKIP LOCKED",
        put_instead="LIMIT %s",
        test=f"{CLAIM}::test_concurrent_claims_share_the_items[outbox-postgres]",
        what_happens="two workers claim the same message",
    ),
    Guard(
        name="at-once-skip-locked",
        file=FILE,
        removed="FOR UPDATE SKIP LOCKED",
        put_instead="FOR UPDATE",
        test=f"{RACES}::test_a_claim_passes_over_what_another_session_is_claiming[postgres]",
        what_happens="workers wait for each other's claims",
    ),
    Guard(
        name="at-once-mark",
        file=FILE,
        removed="AND (due_at, id) > (%s, %s) ",
        put_instead="AND (due_at >= %s OR id = %s) ",
        test=f"{CLAIM}::test_a_claim_begins_behind_its_mark[outbox-postgres]",
        what_happens="a claim walks again over all that fell due at the same moment",
    ),
    Guard(
        name="at-once-order",
        file=FILE,
        removed="    rows.sort(key=itemgetter(due_at, id_at))  # RETURNING promises no order\n",
        put_instead="    rows.sort(key=itemgetter(id_at))\n",
        test=f"{CLAIM}::test_a_claim_of_one_lane_keeps_its_limit_and_its_order[outbox-postgres]",
        what_happens="messages run in another order than they fell due, and the mark jumps over some",
    ),
    Guard(
        name="at-once-empties-slot",
        file=FILE,
        removed="last_attempt_at = {now}{leaves} ",
        put_instead="last_attempt_at = coalesce({now}, now()) ",
        test="tests/integration/test_enqueue.py::test_a_claimed_message_no_longer_takes_duplicates[postgres]",
        what_happens="a deduplicated change is merged into a message that already runs, and is lost",
    ),
    Guard(
        name="at-once-fence-token",
        file=FILE,
        removed='        "AND item.owner_token = ours.token"\n',
        put_instead="",
        test=f"{SETTLE}::test_a_stale_owner_changes_nothing_and_is_told[outbox-postgres-ack]",
        what_happens="a stale worker ends what another one is running",
    ),
    Guard(
        name="at-once-tells-lost",
        file=FILE,
        removed="lost = [] if head[0] == len(done) else _missing(done, head[1])",
        put_instead="lost: list[Any] = []",
        test=f"{SETTLE}::test_a_stale_owner_changes_nothing_and_is_told[outbox-postgres-ack]",
        what_happens="a lost claim is taken for an acknowledged one",
    ),
    Guard(
        name="at-once-lost-by-token",
        file=FILE,
        removed='if f"{item.id}{item.owner_token}" not in ours]',
        put_instead="if str(item.id) not in {text[:36] for text in ours}]",
        test=f"{HARD}::test_the_same_item_stale_and_fresh[postgres]",
        what_happens="a stale claim hides behind the fresh one of the same message",
    ),
    Guard(
        name="at-once-failures-of-deleted",
        file=FILE,
        removed="        and (keep_done or not had_trouble(settlement.item))\n",
        put_instead="",
        test=f"{SETTLE}::test_failures_go_with_a_deleted_item[outbox-postgres]",
        what_happens="failures of messages that are long gone stay for ever",
    ),
    Guard(
        name="at-once-result",
        file=FILE,
        removed="        and settlement.result is None\n",
        put_instead="",
        test=f"{SETTLE}::test_a_result_is_kept[outbox-postgres]",
        what_happens="what a handler returned is lost",
    ),
    Guard(
        name="at-once-observer",
        file="workqueue/transactions.py",
        removed='        except Exception:\n            logger.exception("What was acknowledged',
        put_instead='        except ZeroDivisionError:\n            logger.exception("What was acknowledged',
        test="tests/integration/test_claiming.py::test_an_observer_that_fails_takes_nothing_back[postgres]",
        what_happens="a committed claim is forgotten, and its messages wait for their lease to end",
    ),
]
