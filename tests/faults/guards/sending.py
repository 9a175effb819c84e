"""Guards of enqueueing and deduplication."""

from __future__ import annotations

from .guard import Guard

ENQUEUE = "tests/integration/test_enqueue.py"
STORING = "tests/contract/test_storing.py"
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
        removed="        if not isinstance(message, OutgoingMessage):\n",
        put_instead="        if False:\n",
        test=f"{ENQUEUE}::test_one_bad_message_of_many_stores_none[default]",
        what_happens="a wrong value breaks the caller with an error that says nothing",
    ),
    Guard(
        name="enqueue-all-or-none",
        file="workqueue/deadlock.py",
        removed="        with transaction.atomic(using=alias, savepoint=False):\n            return work()",
        put_instead="        return work()",
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
        name="insert-what-database-says",
        file="storing/insert.py",
        removed="            value = convert(value, column, connection)\n",
        put_instead="            pass\n",
        test=f"{STORING}::test_the_answer_is_the_row_that_was_stored[one-default]",
        what_happens="the row that is returned has times without a zone, or texts for times",
    ),
    Guard(
        name="copy-is-seen",
        file="storing/many.py",
        removed="        execute = partial(wrapper, execute)\n",
        put_instead="        pass\n",
        test=f"{STORING}::test_who_looks_at_statements_sees_it[many-postgres]",
        what_happens="a COPY passes by whoever counts or refuses statements",
    ),
    Guard(
        name="copy-in-a-broken-transaction",
        file="storing/many.py",
        removed="    connection.validate_no_broken_transaction()\n",
        put_instead="",
        test=f"{STORING}::test_a_broken_transaction_takes_no_rows[postgres-2]",
        what_happens="messages are handed to a transaction that will be rolled back, and nobody is told",
    ),
    Guard(
        name="copy-errors",
        file="storing/many.py",
        removed="    with connection.wrap_database_errors, context",
        put_instead="    with context",
        test=f"{STORING}::test_a_row_that_is_refused_is_an_error_of_djangos[many-postgres]",
        what_happens="a refused COPY raises an error of the driver's, which no caller of Django's expects",
    ),
    Guard(
        name="many-left-out",
        file="storing/many.py",
        removed="            yield other\n",
        put_instead="            yield other if prepared is _NOTHING else prepared\n",
        test=f"{STORING}::test_every_column_is_as_the_orm_writes_it[many-default]",
        what_happens="a message is given a value of the message before it",
    ),
    Guard(
        name="dedup-sorted",
        file="storing/__init__.py",
        removed="sorted(once, key=lambda message: str(message.dedup_slot))",
        put_instead="once",
        test=f"{RACES}::test_bulk_enqueues_of_the_same_keys_do_not_deadlock[postgres]",
        what_happens="two transactions with the same keys deadlock",
    ),
    Guard(
        name="dedup-lock",
        file="storing/once.py",
        removed="rows.select_for_update().filter(pk=found).first()",
        put_instead="rows.filter(pk=found).first()",
        test=f"{RACES}::test_an_update_that_meets_a_claim_becomes_a_message_of_its_own[postgres]",
        what_happens="a change is merged into a message that already runs, and is lost",
    ),
    Guard(
        name="dedup-lock-by-key",
        file="storing/once.py",
        removed="rows.select_for_update().filter(pk=found).first()",
        put_instead="rows.select_for_update().filter(dedup_slot=row.dedup_slot).first()",
        test=f"{RACES}::test_a_claim_and_an_update_lock_in_the_same_order[mariadb]",
        what_happens="on MariaDB a claim and an enqueue deadlock",
    ),
    Guard(
        name="dedup-still-held",
        file="storing/once.py",
        removed="return holder if holder is not None and getattr(holder, slot.column) == wanted else None",
        put_instead="return holder",
        test=f"{RACES}::test_an_update_that_meets_a_claim_becomes_a_message_of_its_own[postgres]",
        what_happens="a change is merged into a message that was claimed while we waited, and is lost",
    ),
    Guard(
        name="dedup-conflict",
        file="storing/once.py",
        removed="rows.bulk_create([row], ignore_conflicts=True)",
        put_instead="rows.bulk_create([row])",
        test=f"{RACES}::test_two_producers_of_one_key[postgres-True]",
        what_happens="of two producers at once, one breaks or loses its change",
    ),
    Guard(
        name="dedup-index-unique",
        file="models/indexes.py",
        removed="models.UniqueConstraint(fields=self.fields, name=self.name, condition=condition)",
        put_instead="models.Index(fields=self.fields, name=self.name)",
        test=f"{RACES}::test_two_producers_of_one_key[postgres-True]",
        what_happens="two producers at once make two messages of one key",
    ),
    Guard(
        name="dedup-merge",
        file="storing/once.py",
        removed="    if holder.pk != row.pk:\n",
        put_instead="    if False:\n",
        test=f"{ENQUEUE}::test_dedup_keeps_one_waiting_message[default]",
        what_happens="the waiting message keeps the old payload",
    ),
]
