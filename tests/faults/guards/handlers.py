"""Guards around the call of a handler."""

from __future__ import annotations

from .guard import Guard

WORKER = "tests/integration/test_worker.py"
HARD = "tests/integration/test_hard_cases.py"
ALONE = "tests/faults/test_bad_handlers.py::test_alone"
MIDDLE = "tests/faults/test_bad_handlers.py::test_in_the_middle_of_a_chunk"

GUARDS = [
    Guard(
        name="run-any-exception",
        file="dispatch/run.py",
        removed="    except BaseException as exc:\n        if handler is not None and not entered:",
        put_instead="    except Exception as exc:\n        if handler is not None and not entered:",
        test=f"{ALONE}[system_exit-default]",
        what_happens="a handler that calls sys.exit() makes its neighbours run again",
    ),
    Guard(
        name="run-not-its-fault",
        file="dispatch/run.py",
        removed="        if handler is not None and not entered:\n            raise\n",
        put_instead="",
        test="tests/faults/test_bad_handlers.py"
        "::test_a_session_that_dies_again_and_again_is_no_fault_of_the_message[postgres]",
        what_happens="a message is charged for a savepoint that could not be made",
    ),
    Guard(
        name="run-unknown-topic",
        file="dispatch/run.py",
        removed="            raise _undeliverable(message)\n",
        put_instead='            raise ValueError("no handler")\n',
        test=f"{WORKER}::test_an_unknown_topic_is_not_killed[default]",
        what_happens="during a deployment, old workers kill messages that only new ones know",
    ),
    Guard(
        name="run-longest-wait",
        file="dispatch/run.py",
        removed="return max(timedelta(0), min(wait, LONGEST_WAIT))",
        put_instead="return max(timedelta(0), wait)",
        test=f"{HARD}::test_an_endless_wait_is_cut_to_what_a_database_can_hold[default-wait0]",
        what_happens="a wait that no database can hold stops the worker",
    ),
    Guard(
        name="run-free-retry-waits",
        file="dispatch/run.py",
        removed="return Release(item=message, delay=_delay(outcome, handler, message.attempts - 1))",
        put_instead="return Release(item=message, delay=outcome.delay)",
        test=f"{WORKER}::test_steering_exceptions[default]",
        what_happens="Retry(charge=False) without a time is a busy loop",
    ),
    Guard(
        name="run-backoff-errors",
        file="dispatch/run.py",
        removed="        except Exception:\n            logs.logger.exception(",
        put_instead="        except ZeroDivisionError:\n            logs.logger.exception(",
        test=f"{WORKER}::test_the_wrong_backoff_of_a_handler_falls_back[default]",
        what_happens="a wrong backoff of a handler loses the reason of its failure",
    ),
    Guard(
        name="run-result-errors",
        file="dispatch/run.py",
        removed="    except BaseException as exc:  # a property",
        put_instead="    except ZeroDivisionError as exc:  # a property",
        test=f"{WORKER}::test_a_result_that_cannot_be_kept_does_not_fail_the_message[default-False]",
        what_happens="work that is done is done again, for the sake of a value that nobody may want",
    ),
    Guard(
        name="run-nothing-ran",
        file="dispatch/run.py",
        removed="    if isinstance(returned, UNSTARTED):\n",
        put_instead="    if False:\n",
        test=f"{ALONE}[generator-default]",
        what_happens="a handler with a yield in it is acknowledged, and none of its lines has run",
    ),
    Guard(
        name="run-isolated",
        file="dispatch/run.py",
        removed="result = isolated(_call, handler, message)",
        put_instead="result = _call(handler, message)",
        test=f"{ALONE}[leaked_context-default]",
        what_happens="the language, the time zone and the precision of one handler reach the next",
    ),
    Guard(
        name="run-forked",
        file="dispatch/isolate.py",
        removed="    if thread.is_forked:\n        os._exit(0)\n",
        put_instead="",
        test=f"{ALONE}[fork-default]",
        what_happens="a child that a handler forked goes on as a second worker",
    ),
    Guard(
        name="run-fork-own-sessions",
        file="dispatch/isolate.py",
        removed="os.register_at_fork(after_in_child=_part_from_parent)\n",
        put_instead="",
        test=f"{ALONE}[fork_that_uses_the_database-postgres]",
        what_happens="a child that a handler forked talks in its parent's session",
    ),
    Guard(
        name="watch-refuses",
        file="dispatch/watch.py",
        removed="            raise self._refused\n        elif",
        put_instead="            self._refused = None\n        elif",
        test=f"{MIDDLE}[commit-postgres]",
        what_happens="a COMMIT in a handler commits its neighbours without their acks",
    ),
    Guard(
        name="watch-refusal-swallowed",
        file="dispatch/watch.py",
        removed="        if self._refused is not None:\n            raise self._refused  # the",
        put_instead="        if self._refused is not None:\n            pass  # the",
        test=f"{ALONE}[swallowed_refusal-default]",
        what_happens="a handler that was refused its ROLLBACK is acknowledged with all it wrote",
    ),
    Guard(
        name="watch-blocks",
        file="dispatch/watch.py",
        removed="unbalanced = self._shared is not None and self._put_blocks_back(self._shared)",
        put_instead="unbalanced = False",
        test=f"{MIDDLE}[block_never_left-default]",
        what_happens="a block that was never left swallows the chunk's own, and its commit",
    ),
    Guard(
        name="watch-not-connecting",
        file="dispatch/watch.py",
        removed="    return frame is not None\n",
        put_instead="    return False\n",
        test="tests/integration/test_session.py::test_what_opens_a_session_elsewhere_is_no_handlers_doing[default]",
        what_happens="what opens a session counts as its handler's doing, and each message connects anew",
    ),
    Guard(
        name="watch-left-open",
        file="dispatch/watch.py",
        removed="                _check_nothing_left(connection)\n",
        put_instead="                pass\n",
        test=f"{ALONE}[uncommitted_elsewhere-default]",
        what_happens="a handler is done, and what it wrote elsewhere was never committed",
    ),
]
