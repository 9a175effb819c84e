"""Bad handlers: what can be done with SQL, and past Django with the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import OperationalError, connections, transaction

from reliable_messaging import Message

from .deadlock import fall_into_deadlock
from .kinds import DONE, OTHER, OWN, ROW_LOCKING, TRANSIENT, bad

Statements = Mapping[str, str]


def execute(message: Message, sql: str | Statements, params: Any = None, *, using: str | None = None) -> None:
    connection = connections[using or message.using]
    text = sql if isinstance(sql, str) else sql.get(connection.vendor) or sql["others"]
    with connection.cursor() as cursor:
        cursor.execute(text, params)
        if text.startswith("SELECT"):
            cursor.fetchall()


# Transactions


@bad(tells="may not run COMMIT")
def commit(message: Message) -> None:
    execute(message, "COMMIT")


@bad(tells="may not run /* why not */ rollback")
def rollback(message: Message) -> None:
    execute(message, "/* why not */ rollback")


@bad(tells="may not run SELECT 1; COMMIT; BEGIN")
def commit_among_others(message: Message) -> None:
    execute(message, "SELECT 1; COMMIT; BEGIN")


@bad(tells="may not run ROLLBACK")
def swallowed_refusal(message: Message) -> None:
    """It goes on as if its work had been undone."""
    try:
        execute(message, "ROLLBACK")
    except Exception:
        pass


@bad(ends=DONE, differently={"mysql": OWN})
def ddl(message: Message) -> None:
    """MariaDB ends the transaction before it: refused there. Undone like anything else elsewhere."""
    execute(message, "CREATE TABLE bad_ddl (id integer)")
    execute(message, "DROP TABLE bad_ddl")


@bad(databases=("mysql",), tells="may not run LOCK TABLES")
def lock_tables(message: Message) -> None:
    execute(message, "LOCK TABLES testapp_effect WRITE")


@bad(keeps=1)
def commit_by_the_driver(message: Message) -> None:
    connections[message.using].connection.commit()


@bad()
def rollback_by_the_driver(message: Message) -> None:
    connections[message.using].connection.rollback()


@bad(databases=("sqlite",), keeps=1)
def script(message: Message) -> None:
    """The driver commits before it runs one."""
    with connections[message.using].cursor() as cursor:
        cursor.executescript("SELECT 1;")


@bad(tells="left a transaction open on 'other'")
def raw_begin_elsewhere(message: Message) -> None:
    execute(message, "BEGIN", using=OTHER)
    execute(message, "INSERT INTO testapp_effect (name) VALUES ('never committed')", using=OTHER)


@bad(databases=ROW_LOCKING, ends=TRANSIENT, tells="eadlock")
def deadlock(message: Message) -> None:
    fall_into_deadlock(message)


@bad(databases=("mysql",), tells="TransactionBroken")
def swallowed_deadlock(message: Message) -> None:
    """Everything since the transaction began is gone, and the handler does not care."""
    try:
        fall_into_deadlock(message)
    except OperationalError:
        pass


@bad(databases=("mysql",), tells="HandlerRolledBack")
def swallowed_deadlock_in_a_block(message: Message) -> None:
    try:
        with transaction.atomic(using=message.using):
            fall_into_deadlock(message)
    except OperationalError:
        pass


# Settings of the session

SETTING: Statements = {
    "sqlite": "PRAGMA cache_size = 77",
    "postgresql": "SET application_name = 'bad'",
    "mysql": "SET @bad = 1, sql_mode = ''",
}
READ_ONLY: Statements = {
    "sqlite": "PRAGMA query_only = 1",
    "postgresql": "SET default_transaction_read_only = on",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
}


@bad(ends=DONE)
def setting(message: Message) -> None:
    execute(message, SETTING)


@bad(ends=DONE)
def setting_in_a_hook(message: Message) -> None:
    transaction.on_commit(lambda: execute(message, SETTING), using=message.using)


@bad(ends=DONE)
def setting_elsewhere(message: Message) -> None:
    execute(message, SETTING, using=OTHER)


@bad(ends=DONE, differently={"sqlite": TRANSIENT})
def read_only(message: Message) -> None:
    """From the next transaction on; SQLite at once, so that the ack cannot be written."""
    execute(message, READ_ONLY)


@bad(tells="the last words of a bad handler")
def failing_setting(message: Message) -> None:
    """Undone by PostgreSQL, and by no other, with the savepoint."""
    execute(message, SETTING)
    raise ValueError("the last words of a bad handler")


@bad(ends=DONE)
def temporary_table(message: Message) -> None:
    execute(message, "CREATE TEMPORARY TABLE bad_temporary (id integer)")


@bad(ends=DONE, databases=("postgresql",))
def setting_for_the_transaction(message: Message) -> None:
    """The next member of the chunk is in the same transaction."""
    execute(message, "SET LOCAL work_mem = '77kB'")


@bad(ends=DONE, databases=("postgresql",))
def setting_by_function(message: Message) -> None:
    execute(message, "SELECT set_config('application_name', %s, false)", ["bad"])


@bad(ends=DONE, databases=ROW_LOCKING)
def lock_for_the_session(message: Message) -> None:
    ask = {"postgresql": "SELECT pg_advisory_lock(4711)", "mysql": "SELECT GET_LOCK('bad', 0)"}
    execute(message, ask)
