"""Guards of the cron layer: what a schedule does on the nights when clocks change, and what it refuses."""

from __future__ import annotations

from .guard import Guard

CRON = "tests/unit/test_cron.py"

GUARDS = [
    Guard(
        name="cron-fold-once",
        file="cron.py",
        removed="bool(local.fold) and not pattern.both_passes",
        put_instead="False",
        test=f"{CRON}::test_what_is_due_in_a_fold",
        what_happens="a nightly job runs twice in the night when clocks are put back",
    ),
    Guard(
        name="cron-fold-intervals",
        file="cron.py",
        removed="both_passes=minute or hour",
        put_instead="both_passes=hour",
        test=f"{CRON}::test_what_is_due_in_a_fold",
        what_happens="what runs every few minutes stands still for an hour",
    ),
    Guard(
        name="cron-gap",
        file="cron.py",
        removed="            if in_gap and not pattern.every_hour:\n                return end\n",
        put_instead="",
        test=f"{CRON}::test_what_is_due_in_a_gap",
        what_happens="a nightly job does not run in the night when clocks are put forward",
    ),
    Guard(
        name="cron-transitions",
        file="cron.py",
        removed="            if end is None:\n                return due\n",
        put_instead="            return due\n",
        test=f"{CRON}::test_what_is_due_in_a_gap",
        what_happens="what falls due after clocks have changed runs an hour off",
    ),
    Guard(
        name="cron-inclusive",
        file="cron.py",
        removed="at, excluded = end, _SECOND",
        put_instead="at, excluded = end, timedelta(0)",
        test=f"{CRON}::test_what_is_due_in_a_fold",
        what_happens="what is due at the moment when clocks change is left out",
    ),
    Guard(
        name="cron-copied",
        file="cron.py",
        removed="copy(self.parsed)",
        put_instead="self.parsed",
        test=f"{CRON}::test_what_threads_share_is_not_written_to",
        what_happens="two threads that ask at once get each other's times",
    ),
    Guard(
        name="cron-never",
        file="cron.py",
        removed="    if fires is None:\n",
        put_instead="    if False:\n",
        test=f"{CRON}::test_what_is_refused",
        what_happens="a job that never runs is taken without a word",
    ),
    Guard(
        name="cron-hashed",
        file="cron_syntax.py",
        removed="    if any(_HASHED.fullmatch(item) for item in items):\n",
        put_instead="    if False:\n",
        test=f"{CRON}::test_what_is_refused",
        what_happens="nobody is told that H and R are not supported",
    ),
    Guard(
        name="cron-step",
        file="cron_syntax.py",
        removed="if not 1 <= step <= field.size:",
        put_instead="if not 1 <= step:",
        test=f"{CRON}::test_what_is_refused",
        what_happens="*/90 minutes runs every hour",
    ),
    Guard(
        name="cron-sunday",
        file="cron_syntax.py",
        removed="number % 7 if field is _DAY_OF_WEEK else number",
        put_instead="number",
        test=f"{CRON}::test_seven_is_sunday",
        what_happens="7 is a Sunday in five fields, and refused in six",
    ),
    Guard(
        name="cron-two-days",
        file="cron_syntax.py",
        removed='    if "w" in day_of_month or "#" in day_of_week or "l" in day_of_week:\n',
        put_instead="    if False:\n",
        test=f"{CRON}::test_what_is_refused",
        what_happens="of a day of month and a second Friday croniter wants both, against the rule",
    ),
    Guard(
        name="cron-zone-names",
        file="cron.py",
        removed="if isinstance(name, str) and _ZONE_NAME.fullmatch(name):",
        put_instead="if isinstance(name, str):",
        test=f"{CRON}::test_what_is_no_zone",
        what_happens="a job goes by the time zone of whichever machine its scheduler runs on",
    ),
]
