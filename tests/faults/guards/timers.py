"""Guards of timers: exactly one message each, in time."""

from __future__ import annotations

from .guard import Guard

TIMERS = "tests/integration/test_timers.py"
SCHEDULER = "tests/integration/test_scheduler.py"

GUARDS = [
    Guard(
        name="timer-in-one-transaction",
        file="workqueue/queue.py",
        removed="""\
        return self._in_transaction(
            lambda: hand_over.hand_over(
                self.model, self.alias, lane=lane, limit=limit, make=make, keep_done=self._keeps_done
            )
        )
""",
        put_instead="""\
        return hand_over.hand_over(
            self.model, self.alias, lane=lane, limit=limit, make=make, keep_done=self._keeps_done
        )
""",
        test=f"{SCHEDULER}::test_a_scheduler_that_dies_has_done_nothing[default]",
        what_happens="a scheduler that dies leaves messages whose timers fire again",
    ),
    Guard(
        name="timer-same-id",
        file="promote.py",
        removed='        "id": item.id,\n',
        put_instead="",
        test=f"{TIMERS}::test_a_timer_becomes_a_message_when_it_is_due[default]",
        what_happens="nothing but a status keeps a timer from making two messages",
    ),
    Guard(
        name="timer-has-its-message",
        file="promote.py",
        removed="for item in _not_promoted(due, alias)",
        put_instead="for item in due",
        test=f"{TIMERS}::test_a_timer_that_has_its_message_makes_no_second_one[default]",
        what_happens="one timer that was requeued keeps all others of its batch from firing, for ever",
    ),
    Guard(
        name="timer-name-is-free",
        file="models/timer.py",
        removed='ready_only: ClassVar[dict[str, Any]] = {"name_slot": None}',
        put_instead="ready_only: ClassVar[dict[str, Any]] = {}",
        test=f"{TIMERS}::test_a_name_makes_it_unique_while_it_waits[default]",
        what_happens="a name can be used once, and then moves a timer that has fired",
    ),
    Guard(
        name="timer-moves-everything",
        file="storing/once.py",
        removed='return {"due_at": _due(row), **{name: getattr(row, name) for name in MOVED}}',
        put_instead='return {"due_at": _due(row)}',
        test=f"{TIMERS}::test_a_name_makes_it_unique_while_it_waits[default]",
        what_happens="a timer that is scheduled again keeps its old payload",
    ),
    Guard(
        name="timer-needs-a-time",
        file="outgoing.py",
        removed="    if outgoing.delay is None and outgoing.due_at is None:\n",
        put_instead="    if False:\n",
        test=f"{TIMERS}::test_bad_input_is_refused_before_anything_is_written[default-no time]",
        what_happens="a timer without a time fails with a KeyError",
    ),
    Guard(
        name="timer-every-lane",
        file="workers/promotion.py",
        removed="for lane in lanes)\n        if fired:",
        put_instead="for lane in lanes[:1])\n        if fired:",
        test=f"{SCHEDULER}::test_every_queue_and_priority_is_served[default]",
        what_happens="timers of one queue wait for all those of another",
    ),
    Guard(
        name="timer-looks-again",
        file="workers/scheduler.py",
        removed="or any(fired) or any(more)",
        put_instead="or any(more)",
        test=f"{SCHEDULER}::test_it_looks_again_behind_what_it_has_fired[default]",
        what_happens="behind a timer that has fired the next one waits for a poll",
    ),
    Guard(
        name="timer-next-in",
        file="workers/scheduler.py",
        removed="min([self.options.poll_max, *view.waits])",
        put_instead="self.options.poll_max",
        test=f"{SCHEDULER}::test_it_sleeps_until_the_next_is_due[default]",
        what_happens="timers are up to POLL_MAX late",
    ),
    Guard(
        name="timer-suspects",
        file="workers/promotion.py",
        removed="*([None] if seen.suspect_due else [])",
        put_instead="",
        test=f"{TIMERS}::test_what_somebodys_own_processor_died_over_fires_too[default]",
        what_happens="a timer over which somebody's own processor died never fires",
    ),
    Guard(
        name="timer-wakes",
        file="timers.py",
        removed="    if any(is_due_soon(timer) for timer in timers):\n",
        put_instead="    if False:\n",
        test=f"{SCHEDULER}::test_a_commit_wakes_a_scheduler[postgres]",
        what_happens="a timer that is due in a moment waits for the next poll",
    ),
    Guard(
        name="timer-dead-wire",
        file="workers/scheduler.py",
        removed="if self._has_wire and began is not None and",
        put_instead="if False and began is not None and",
        test=f"{SCHEDULER}::test_a_silent_database_ends_the_process[postgres]",
        what_happens="a scheduler behind a proxy that swallows packets hangs for ever",
    ),
    Guard(
        name="timer-alert",
        file="workers/scheduler.py",
        removed="        if began < self._alert_until:\n",
        put_instead="        if False:\n",
        test=f"{SCHEDULER}::test_a_burst_of_commits_is_not_missed[postgres]",
        what_happens="the last timers of a burst wait for the next poll",
    ),
    Guard(
        name="timer-locked-head",
        file="workers/scheduler.py",
        removed="or any(seen.lanes for seen in self.seen)",
        put_instead="",
        test=f"{SCHEDULER}::test_a_locked_timer_does_not_hide_the_next_one[postgres]",
        what_happens="timers behind one that somebody has locked are up to POLL_MAX late",
    ),
    Guard(
        name="timer-poison",
        file="workers/promotion.py",
        removed="            if is_passing(exc) or is_gone(connections[using]):\n                raise\n"
        "            logs.event",
        put_instead="            raise\n            logs.event",
        test=f"{TIMERS}::test_one_that_cannot_become_a_message_holds_up_no_others[default]",
        what_happens="one timer that cannot become a message keeps all others from firing, for ever",
    ),
    Guard(
        name="timer-failures-kept",
        file="models/upcoming.py",
        removed="return [pk for pk in ids if pk not in kept]",
        put_instead="return list(ids)",
        test=f"{TIMERS}::test_purging_timers_keeps_what_is_known_of_their_messages[default]",
        what_happens="when a timer is purged, its dead message loses its tracebacks",
    ),
    Guard(
        name="timer-by-size",
        file="timers.py",
        removed="for part in by_size(timers):",
        put_instead="for part in [timers]:",
        test=f"{TIMERS}::test_large_ones_are_scheduled_and_fired[mariadb]",
        what_happens="on MariaDB, many large timers end the caller's connection",
    ),
    Guard(
        name="timer-deadlock",
        file="workqueue/deadlock.py",
        removed="return whole() if connections[alias].in_atomic_block else retrying_deadlocks(whole)",
        put_instead="return whole()",
        test=f"{TIMERS}::test_a_deadlock_reaches_nobody_who_has_no_transaction[default]",
        what_happens="on MariaDB a caller without a transaction gets a deadlock that is not his",
    ),
]
