"""Guards against a database that is away, slow, or has no connections to give."""

from __future__ import annotations

from .guard import Guard

LOST_WIRE = "tests/integration/test_lost_wire.py"
POOL = "tests/integration/test_pool.py"
SESSION = "tests/integration/test_session.py"
LAUNCH = "tests/unit/test_launch.py"

GUARDS = [
    Guard(
        name="leave-files-behind",
        file="workers/launch.py",
        removed="    keep_files_from_successor()\n    os.execve",
        put_instead="    os.execve",
        test=f"{LAUNCH}::test_a_replaced_process_hands_no_file_on",
        what_happens="on MariaDB the sessions of a worker that is no more keep their row locks",
    ),
    Guard(
        name="settle-away-at-once",
        file="workers/settling.py",
        removed="if connections[self.queue.alias].connection is None:\n",
        put_instead="if False:\n",
        test=f"{LOST_WIRE}::test_settling_does_not_hammer_a_database_that_is_away[default]",
        what_happens="each settlement that waits tries a connection of its own while the database is away",
    ),
    Guard(
        name="pool-follows",
        file="workers/pool.py",
        removed="if self._leader is not leader or clock",
        put_instead="if clock",
        test=f"{POOL}::test_a_new_session_of_the_claiming_thread_renews_those_of_the_handlers[default]",
        what_happens="after an outage each handler thread fails a message to find out",
    ),
    Guard(
        name="pool-long-rest",
        file="workers/pool.py",
        removed=" or clock.monotonic() > idle_since + self._longest_rest:",
        put_instead=":",
        test=f"{POOL}::test_a_session_that_rested_for_a_lease_is_renewed[default]",
        what_happens="the first message after a quiet night fails for a session that the server has ended",
    ),
    Guard(
        name="respite-no-claims",
        file="workers/claiming.py",
        removed="        if self.tasks.respite.is_on:\n            return 0\n",
        put_instead="",
        test=f"{LOST_WIRE}::test_handlers_that_cannot_connect_make_no_busy_loop[default]",
        what_happens="with no connection for handlers the whole backlog is claimed and given back",
    ),
    Guard(
        name="respite-no-tries",
        file="workers/tasks.py",
        removed="        if self.respite.is_on:\n            return False\n",
        put_instead="",
        test=f"{LOST_WIRE}::test_handlers_that_cannot_connect_make_no_busy_loop[default]",
        what_happens="each message tries a connection of its own at a server that has none to give",
    ),
    Guard(
        name="handler-needs-session",
        file="workers/tasks.py",
        removed="if self.stopping() or self._has_session():",
        put_instead="if True:",
        test=f"{LOST_WIRE}::test_handlers_that_cannot_connect_make_no_busy_loop[default]",
        what_happens="handlers start without a session, find out half-way, and are charged",
    ),
    Guard(
        name="session-connect",
        file="workers/session.py",
        removed="min(LONGEST_CONNECT, int(self.lease.total_seconds() / 2))",
        put_instead="LONGEST_CONNECT",
        test=f"{SESSION}::test_an_attempt_to_connect_ends_within_the_lease",
        what_happens="the watchdog takes a slow connection for a dead wire, and replaces the process",
    ),
]
