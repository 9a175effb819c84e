"""Guards of named leases: one holder at a time, who knows in time when it is one no more."""

from __future__ import annotations

from .guard import Guard

LEASES = "tests/integration/test_leases.py"
HANDLERS = "tests/integration/test_leased_handlers.py"
FAULTS = "tests/faults/test_leases.py"

GUARDS = [
    Guard(
        name="lease-only-free",
        file="leases/table.py",
        removed="taken = _row(alias, name).filter(free)",
        put_instead="taken = _row(alias, name)",
        test=f"{LEASES}::test_one_holds_it_and_the_others_are_told_who[default]",
        what_happens="two hold the same lease",
    ),
    Guard(
        name="lease-ended-is-free",
        file="leases/table.py",
        removed="free = Q(expires_at__isnull=True) | Q(expires_at__lte=clock.now())",
        put_instead="free = Q(expires_at__isnull=True)",
        test=f"{LEASES}::test_an_ended_lease_is_free[default]",
        what_happens="a lease whose holder was killed is never free again",
    ),
    Guard(
        name="lease-next-token",
        file="leases/table.py",
        removed='token=F("token") + 1, ',
        put_instead="",
        test=f"{LEASES}::test_each_holder_has_a_greater_token[default]",
        what_happens="a stale holder has the token of the new one",
    ),
    Guard(
        name="lease-new-name",
        file="leases/table.py",
        removed=", ignore_conflicts=True",
        put_instead="",
        test=f"{LEASES}::test_of_many_at_once_one_gets_it[postgres]",
        what_happens="of several who want a new lease, some break",
    ),
    Guard(
        name="lease-renew-own",
        file="leases/table.py",
        removed="""\
        held = _row(alias, name).filter(token=token, expires_at__gt=clock.now())
        if not held.update(""",
        put_instead="""\
        held = _row(alias, name).filter(expires_at__gt=clock.now())
        if not held.update(""",
        test=f"{LEASES}::test_a_stale_holder_renews_nothing[default]",
        what_happens="a stale holder keeps the lease of the new one, and believes that it is its own",
    ),
    Guard(
        name="lease-renew-in-time",
        file="leases/table.py",
        removed="""\
        held = _row(alias, name).filter(token=token, expires_at__gt=clock.now())
        if not held.update(""",
        put_instead="""\
        held = _row(alias, name).filter(token=token)
        if not held.update(""",
        test=f"{LEASES}::test_an_ended_lease_is_free[default]",
        what_happens="a lease that was over comes back to life",
    ),
    Guard(
        name="lease-release-own",
        file="leases/table.py",
        removed="""\
        held = _row(alias, name).filter(token=token, expires_at__gt=clock.now())
        return""",
        put_instead="""\
        held = _row(alias, name).filter(expires_at__gt=clock.now())
        return""",
        test=f"{LEASES}::test_who_lost_it_does_not_release_it_for_the_next[default]",
        what_happens="a stale holder gives away what somebody else holds",
    ),
    Guard(
        name="lease-outside-transactions",
        file="leases/table.py",
        removed="    if in_transaction(connections[alias]):\n        raise LeaseInTransaction\n",
        put_instead="",
        test=f"{LEASES}::test_not_inside_a_transaction[default]",
        what_happens="a lease that nobody sees, and a token that a rollback hands out twice",
    ),
    Guard(
        name="lease-ends-by-itself",
        file="leases/held.py",
        removed="super().is_set() or clock.monotonic() >= self.ends_at",
        put_instead="super().is_set()",
        test=f"{LEASES}::test_a_holder_without_its_database_learns_in_time[default]",
        what_happens="a holder whose database is silent goes on when somebody else has the lease",
    ),
    Guard(
        name="lease-safe-share",
        file="leases/held.py",
        removed="began + seconds * SAFE_SHARE",
        put_instead="began + seconds * 2",
        test=f"{LEASES}::test_a_holder_without_its_database_learns_in_time[default]",
        what_happens="a holder learns of its loss after the lease has ended",
    ),
    Guard(
        name="lease-late-answer",
        file="leases/held.py",
        removed="if answer is None or self.lost.is_set():",
        put_instead="if answer is None:",
        test=f"{LEASES}::test_an_answer_that_comes_too_late_changes_nothing[default]",
        what_happens="a lease is lost, and then it is not: its holder may have stopped already",
    ),
    Guard(
        name="lease-jitter",
        file="leases/held.py",
        removed=" * random.uniform(1 - JITTER, 1)",
        put_instead="",
        test=f"{LEASES}::test_renewals_come_at_the_share_that_was_asked_for[default]",
        what_happens="holders that began together renew together, for ever",
    ),
    Guard(
        name="lease-tries-again",
        file="leases/held.py",
        removed="self._terms.duration.total_seconds() / 20",
        put_instead="self._terms.duration.total_seconds()",
        test=f"{LEASES}::test_an_error_is_tried_again[default]",
        what_happens="one failed renewal loses the lease",
    ),
    Guard(
        name="lease-own-process",
        file="leases/held.py",
        removed="        if self._pid != os.getpid():\n",
        put_instead="        if False:\n",
        test=f"{LEASES}::test_a_forked_child_does_not_give_it_back[default]",
        what_happens="a forked child that ends gives away its parent's lease",
    ),
    Guard(
        name="lease-quiet-end",
        file="leases/held.py",
        removed="            if not quietly:\n                raise\n",
        put_instead="            raise\n",
        test=f"{LEASES}::test_a_loss_does_not_hide_the_blocks_own_error[default]",
        what_happens="the loss of a lease hides the error that tells why",
    ),
    Guard(
        name="lease-new-thread",
        file="leases/keeper.py",
        removed="keeper is None or keeper.is_stuck",
        put_instead="keeper is None",
        test=f"{LEASES}::test_a_new_lease_does_not_wait_for_a_hung_thread[default]",
        what_happens="once a renewal hangs, no lease of the process is renewed any more",
    ),
    Guard(
        name="lease-session-ends",
        file="leases/keeper.py",
        removed="discard(self._session)  # or nobody",
        put_instead="pass  # or nobody",
        test=f"{LEASES}::test_nothing_is_left_open_when_nothing_is_held[postgres]",
        what_happens="the tests of a project cannot drop their database",
    ),
    Guard(
        name="lease-shared",
        file="leases/block.py",
        removed="_holding.set({**_holding.get(), (answer.using, answer.name): answer})",
        put_instead="_holding.set({**_holding.get()})",
        test=f"{LEASES}::test_decorated_functions_share_it[default]",
        what_happens="a function waits for the lease that its caller holds",
    ),
    Guard(
        name="lease-undone",
        file="leases/decorator.py",
        removed="held.raise_if_lost()  # here, where",
        put_instead="pass  # here, where",
        test=f"{HANDLERS}::test_an_atomic_handler_that_lost_its_lease_is_undone[default]",
        what_happens="what a handler wrote without its lease is committed",
    ),
    Guard(
        name="lease-before-the-transaction",
        file="workers/tasks.py",
        removed="if handler is not None and handler.atomic and handler.lease is not None:",
        put_instead="if False:",
        test=f"{HANDLERS}::test_messages_run_one_at_a_time[default-True]",
        what_happens="an atomic handler asks for its lease inside its transaction, and fails",
    ),
    Guard(
        name="lease-charges-nothing",
        file="dispatch/run.py",
        removed="    if isinstance(exc, LeaseUnavailable):\n        return Released(delay=wait_for(exc))\n",
        put_instead="",
        test=f"{HANDLERS}::test_a_message_without_the_lease_waits_and_is_charged_nothing[default-False]",
        what_happens="messages that wait for a lease go dead",
    ),
    Guard(
        name="lease-away-charges-nothing",
        file="workers/tasks.py",
        removed="""\
            except (DatabaseError, InterfaceError) as exc:
                logs.event(logging.ERROR, "lease not taken\"""",
        put_instead="""\
            except ZeroDivisionError as exc:
                logs.event(logging.ERROR, "lease not taken\"""",
        test=f"{HANDLERS}::test_a_lease_that_cannot_be_asked_for_charges_nobody[default]",
        what_happens="messages are charged for a database that is away",
    ),
    Guard(
        name="lease-lands",
        file="workers/tasks.py",
        removed="            except BaseException as exc:  # such as",
        put_instead="            except ZeroDivisionError as exc:  # such as",
        test=f"{HANDLERS}::test_a_lease_on_a_database_that_is_not_there_is_the_messages_fault[default]",
        what_happens="messages of one wrong handler fill a worker for ever, and are charged nothing",
    ),
    Guard(
        name="lease-kept-or-not-taken",
        file="leases/block.py",
        removed="            held.leave(quietly=True)\n            raise\n        return held",
        put_instead="            raise\n        return held",
        test=f"{LEASES}::test_a_lease_that_cannot_be_kept_is_not_taken[default]",
        what_happens="a process out of threads keeps leases that it does not know of",
    ),
    Guard(
        name="lease-not-renewed-after-release",
        file="leases/held.py",
        removed="            self._on_end(self)  # not renewed any more",
        put_instead="            pass  # not renewed any more",
        test=f"{LEASES}::test_what_was_not_given_back_is_renewed_no_more[default]",
        what_happens="a lease that could not be given back is renewed for ever",
    ),
    Guard(
        name="lease-other-context",
        file="leases/block.py",
        removed="with suppress(ValueError):",
        put_instead="with suppress(ZeroDivisionError):",
        test=f"{LEASES}::test_a_block_may_be_left_in_another_context[default]",
        what_happens="a generator that is closed elsewhere keeps its lease for ever",
    ),
    Guard(
        name="lease-not-outlived",
        file="leases/block.py",
        removed="return held if held is not None and held.is_ours else None",
        put_instead="return held",
        test=f"{LEASES}::test_what_outlives_the_block_does_not_hold_it[default]",
        what_happens="what began inside a block, and goes on after it, runs without the lease",
    ),
    Guard(
        name="lease-cancelled",
        file="leases/block.py",
        removed="            await sync_to_async(undo)(result)\n",
        put_instead="            pass\n",
        test=f"{LEASES}::test_a_cancelled_acquisition_keeps_nothing[default]",
        what_happens="an acquisition that is cancelled holds the lease for ever",
    ),
    Guard(
        name="lease-gives-up",
        file="leases/block.py",
        removed=" and not self._give_up()",
        put_instead="",
        test=f"{LEASES}::test_who_waits_can_be_told_to_stop[default]",
        what_happens="a worker that is to stop waits for a lease",
    ),
]
