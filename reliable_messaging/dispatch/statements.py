"""What a statement does besides reading and writing rows, told from its text."""

from __future__ import annotations

import re
from enum import IntEnum


class Reach(IntEnum):
    """How far a statement reaches beyond the rows it names; the farthest counts."""

    ROWS = 0
    TRANSACTION = 1
    """A setting or a temporary table that goes with the transaction."""
    SESSION = 2
    """A setting, a lock or a temporary table that stays for whoever uses the session next."""
    BOUNDARY = 3
    """It begins or ends a transaction."""


def is_plain(sql: str) -> bool:
    """Told at a glance, for nearly every statement of Django's: it reaches no farther than its rows."""
    return sql[:7] in _PLAIN and ";" not in sql and (sql[0] != "S" or not _may_reach_session(sql))


def reach(sql: str, *, commits_on_ddl: bool) -> Reach:
    """``commits_on_ddl``: the database ends the transaction before it changes a table. Such a
    database knows no settings for one transaction either: its SET LOCAL is one for the session."""
    if is_plain(sql):
        return Reach.ROWS
    if ";" in sql and not _DEFINITION.match(sql):
        parts = _LITERAL.sub("''", sql).split(";")
        return max(_reach_of_one(part, commits_on_ddl) for part in parts)
    return _reach_of_one(sql, commits_on_ddl)


def _reach_of_one(sql: str, commits_on_ddl: bool) -> Reach:
    if _BOUNDARY.match(sql) or (commits_on_ddl and _IMPLICIT_COMMIT.match(sql)):
        return Reach.BOUNDARY
    if _may_reach_session(sql) and _SESSION_FUNCTION.search(sql):
        return Reach.TRANSACTION if _SET_CONFIG_LOCALLY.search(sql) else Reach.SESSION
    if _LOCAL.match(sql) and not commits_on_ddl:
        return Reach.TRANSACTION
    if _SESSION.match(sql) and not _HARMLESS.match(sql):
        return Reach.SESSION
    return Reach.ROWS


def _may_reach_session(sql: str) -> bool:
    # Far quicker than a search without regard to case, and nobody writes Set_Config.
    return "_lock" in sql or "_config" in sql or "_LOCK" in sql or "_CONFIG" in sql


_PLAIN = frozenset({"SELECT ", "INSERT ", "UPDATE ", "DELETE ", "SAVEPOI", "RELEASE"})
# MySQL runs what is inside /*! */: no comment.
_START = r"(?:\s|\(|--[^\n]*(?:\n|$)|\#[^\n]*(?:\n|$)|/\*M?!\d*|/\*(?!M?!).*?\*/)*"


def _statement(*beginnings: str) -> re.Pattern[str]:
    either = "|".join(beginning.replace(" ", r"\s+") for beginning in beginnings)
    return re.compile(rf"{_START}(?:{either})\b", re.IGNORECASE | re.DOTALL)


_BOUNDARY = _statement(
    "BEGIN(?! NOT ATOMIC)",
    "START TRANSACTION",
    "COMMIT",
    "END",
    "ABORT",
    "ROLLBACK(?!(?: WORK| TRANSACTION)? TO)",
    "PREPARE TRANSACTION",
    "XA",
    r"SET (?:SESSION |LOCAL |@@(?:SESSION\.|LOCAL\.)?)?AUTOCOMMIT",
)
_IMPLICIT_COMMIT = _statement(
    "ALTER",
    "ANALYZE (?:LOCAL |NO_WRITE_TO_BINLOG )?TABLE",
    "BACKUP",
    "CACHE INDEX",
    "CHANGE",
    "CHECK",
    "CREATE(?! (?:OR REPLACE )?TEMPORARY)",
    "DROP(?! TEMPORARY)",
    "FLUSH",
    "GRANT",
    "INSTALL",
    "LOAD INDEX",
    "LOCK",
    "OPTIMIZE",
    "RENAME",
    "REPAIR",
    "RESET",
    "REVOKE",
    "SET PASSWORD",
    "START",
    "STOP",
    "TRUNCATE",
    "UNINSTALL",
    "UNLOCK",
)
_LOCAL = _statement(
    "SET (?:LOCAL|CONSTRAINTS|TRANSACTION)",
    "CREATE (?:LOCAL |GLOBAL )?TEMP(?:ORARY)? TABLE .*ON COMMIT DROP",
)
_SESSION = _statement(
    "SET",
    "RESET",
    "DISCARD",
    "USE",
    "LISTEN",
    "UNLISTEN",
    "PREPARE",
    "EXECUTE IMMEDIATE",
    "DEALLOCATE",
    "LOAD",
    "ATTACH",
    "DETACH",
    "HANDLER",
    "DECLARE .* WITH HOLD",
    "CREATE (?:OR REPLACE )?(?:LOCAL |GLOBAL )?TEMP(?:ORARY)?",
    r"PRAGMA (?:\w+\.)?\w+(?=\s*[=(])",
)
_HARMLESS = _statement(
    "SET (?:CONSTRAINTS|TRANSACTION|STATEMENT|PASSWORD)",
    "LOAD DATA",
    "LOAD XML",
    r"PRAGMA (?:\w+\.)?(?:table|index|foreign_key)_(?:x?info|list|check)(?=\s*\()",
    r"PRAGMA (?:\w+\.)?(?:integrity_check|quick_check|optimize|wal_checkpoint)(?=\s*\()",
)
_SESSION_FUNCTION = re.compile(r"\b(?:set_config|pg_\w*advisory_lock\w*|get_lock)\s*\(", re.IGNORECASE)
_SET_CONFIG_LOCALLY = re.compile(r"set_config\s*\([^()]*,\s*true\s*\)", re.IGNORECASE)
_DEFINITION = _statement(  # the semicolons are inside of it
    r"CREATE (?:OR REPLACE |TEMP |TEMPORARY |CONSTRAINT |AGGREGATE |DEFINER\s*=\s*\S+ )*"
    "(?:TRIGGER|PROCEDURE|FUNCTION|EVENT|PACKAGE)",
    "BEGIN NOT ATOMIC",
)
_LITERAL = re.compile(
    r"'(?:[^'\\]|\\.|'')*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*(?!M?!).*?\*/|\$(\w*)\$.*?\$\1\$", re.DOTALL
)
