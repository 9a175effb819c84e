"""Guards of enqueueing and deduplication."""

from __future__ import annotations

from .guard import Guard

ENQUEUE = "tests/integration/test_enqueue.py"
RACES = "tests/concurrency/test_races.py"

GUARDS = [
    Guard(
        name="enqueue-require-atomic",
        file="outbox.py",
        removed="        require_transaction(alias)\n",
        put_instead="        pass\n",
        test=f"{ENQUEUE}::test_require_atomic_refuses_that[default]",
        what_happens="a message is sent for a change that is not saved",
    ),
    Guard(
        name="enqueue-checks-first",
        file="outbox.py",
        removed="wanted = [_checked(message) for message in messages]",
        put_instead="wanted = list(messages)",
        test=f"{ENQUEUE}::test_one_bad_message_of_many_stores_none[default]",
        what_happens="a wrong value breaks the caller with an error that says nothing",
    ),
    Guard(
        name="enqueue-all-or-none",
        file="outbox.py",
        removed="    with transaction.atomic(using=alias, savepoint=False):\n        stored",
        put_instead="    if True:\n        stored",
        test=f"{ENQUEUE}::test_many_are_stored_together_or_not_at_all[default]",
        what_happens="an error in the middle of enqueue_many() leaves a part of it",
    ),
    Guard(
        name="enqueue-on-commit",
        file="outbox.py",
        removed="        on_commit(alias, tell_enqueued, alias, stored)\n",
        put_instead="        tell_enqueued(alias, stored)\n",
        test=f"{ENQUEUE}::test_the_signal_and_the_log_line_come_on_commit_only[default]",
        what_happens="others are told of a message that is rolled back",
    ),
    Guard(
        name="dedup-sorted",
        file="outbox.py",
        removed="sorted((r for r in rows if r.dedup_slot), key=lambda r: str(r.dedup_slot))",
        put_instead="(r for r in rows if r.dedup_slot)",
        test=f"{RACES}::test_bulk_enqueues_of_the_same_keys_do_not_deadlock[postgres]",
        what_happens="two transactions with the same keys deadlock",
    ),
    Guard(
        name="dedup-lock",
        file="outbox.py",
        removed="rows.select_for_update().filter(pk=found).first()",
        put_instead="rows.filter(pk=found).first()",
        test=f"{RACES}::test_an_update_that_meets_a_claim_becomes_a_message_of_its_own[postgres]",
        what_happens="a change is merged into a message that already runs, and is lost",
    ),
    Guard(
        name="dedup-lock-by-key",
        file="outbox.py",
        removed="rows.select_for_update().filter(pk=found).first()",
        put_instead="rows.select_for_update().filter(dedup_slot=row.dedup_slot).first()",
        test=f"{RACES}::test_a_claim_and_an_update_lock_in_the_same_order[mariadb]",
        what_happens="on MariaDB a claim and an enqueue deadlock",
    ),
    Guard(
        name="dedup-still-held",
        file="outbox.py",
        removed="return holder if holder is not None and holder.dedup_slot == row.dedup_slot else None",
        put_instead="return holder",
        test=f"{RACES}::test_an_update_that_meets_a_claim_becomes_a_message_of_its_own[postgres]",
        what_happens="a change is merged into a message that was claimed while we waited, and is lost",
    ),
    Guard(
        name="dedup-conflict",
        file="outbox.py",
        removed="            update_conflicts=True,  # someone may have taken the slot since we looked\n",
        put_instead="",
        test=f"{RACES}::test_two_producers_of_one_key[postgres-True]",
        what_happens="of two producers at once, one breaks or loses its change",
    ),
    Guard(
        name="dedup-merge",
        file="outbox.py",
        removed="    if holder.pk != row.pk:\n",
        put_instead="    if False:\n",
        test=f"{ENQUEUE}::test_dedup_keeps_one_waiting_message[default]",
        what_happens="the waiting message keeps the old payload",
    ),
]
