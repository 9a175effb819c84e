"""What a statement's text tells about its reach."""

from __future__ import annotations

import pytest

from reliable_messaging.dispatch.statements import Reach, reach

ROWS, TRANSACTION, SESSION, BOUNDARY = Reach

BOTH = {
    "SELECT 1": ROWS,
    "INSERT INTO t VALUES ('COMMIT')": ROWS,
    "INSERT INTO t VALUES ('a; COMMIT; b')": ROWS,
    'SELECT "a;COMMIT" FROM t; -- COMMIT': ROWS,
    "SELECT 'it''s'; SELECT 2;": ROWS,
    "select * from commits": ROWS,
    "WITH t AS (SELECT 1) SELECT * FROM t": ROWS,
    "SAVEPOINT s1": ROWS,
    "RELEASE SAVEPOINT s1": ROWS,
    "ROLLBACK TO SAVEPOINT s1": ROWS,
    "ROLLBACK TRANSACTION TO s1": ROWS,
    "rollback work to s1": ROWS,
    "SELECT app_lock FROM app_config": ROWS,
    "SELECT pg_advisory_xact_lock(1)": ROWS,
    "UPDATE t SET a = 1": ROWS,
    "BEGIN NOT ATOMIC SELECT 1; COMMIT; END": ROWS,
    "CREATE TEMPORARY TABLE t (a int)": SESSION,
    "SET x = 1": SESSION,
    "SET SESSION TRANSACTION READ ONLY": SESSION,
    "SELECT pg_advisory_lock(1)": SESSION,
    "SELECT pg_try_advisory_lock_shared(1)": SESSION,
    "SELECT GET_LOCK('a', 1)": SESSION,
    "SELECT set_config('a', 'b', false)": SESSION,
    "USE other": SESSION,
    "PREPARE s FROM 'SELECT 1'": SESSION,
    "PRAGMA cache_size = 1": SESSION,
    "PRAGMA main.cache_size(1)": SESSION,
    "PRAGMA cache_size": ROWS,
    "PRAGMA table_info('t')": ROWS,
    "PRAGMA foreign_key_check('t')": ROWS,
    "COMMIT": BOUNDARY,
    "  commit and chain": BOUNDARY,
    "-- really\n/* yes */ COMMIT": BOUNDARY,
    "/*!50000 COMMIT */": BOUNDARY,
    "ROLLBACK": BOUNDARY,
    "ROLLBACK WORK": BOUNDARY,
    "BEGIN": BOUNDARY,
    "START TRANSACTION": BOUNDARY,
    "END": BOUNDARY,
    "ABORT": BOUNDARY,
    "PREPARE TRANSACTION 'x'": BOUNDARY,
    "XA START 'x'": BOUNDARY,
    "SET autocommit = 1": BOUNDARY,
    "SET @@session.autocommit = 1": BOUNDARY,
    "INSERT INTO t VALUES (1); COMMIT": BOUNDARY,
    "CREATE TABLE event (a int); COMMIT": BOUNDARY,
    "CREATE TEMPORARY TABLE function (a int); COMMIT": BOUNDARY,
    "INSERT INTO t VALUES ('x'); SET x = 1": SESSION,
}
WITH_DDL = {
    "CREATE TABLE t (a int)": ROWS,
    "ALTER TABLE t ADD b int": ROWS,
    "LOCK TABLE t IN SHARE MODE": ROWS,
    "TRUNCATE t": ROWS,
    "CREATE TRIGGER t AFTER INSERT ON t BEGIN SELECT 1; END": ROWS,
    "CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END": ROWS,
    "DO $$ BEGIN PERFORM 1; END $$": ROWS,
    "RESET ALL": SESSION,
    "SET LOCAL x = 1": TRANSACTION,
    "SET CONSTRAINTS ALL IMMEDIATE": TRANSACTION,
    "SET TRANSACTION READ ONLY": TRANSACTION,
    "SELECT set_config('a', 'b', true)": TRANSACTION,
    "CREATE TEMP TABLE t (a int) ON COMMIT DROP": TRANSACTION,
}
WITHOUT_DDL = {
    "CREATE TABLE t (a int)": BOUNDARY,
    "CREATE OR REPLACE TEMPORARY TABLE t (a int)": SESSION,
    "DROP TEMPORARY TABLE t": ROWS,
    "CREATE DEFINER = root@localhost PROCEDURE p() BEGIN SELECT 1; END": BOUNDARY,
    "DROP TABLE t": BOUNDARY,
    "alter table t add b int": BOUNDARY,
    "TRUNCATE t": BOUNDARY,
    "LOCK TABLES t WRITE": BOUNDARY,
    "UNLOCK TABLES": BOUNDARY,
    "GRANT ALL ON t TO u": BOUNDARY,
    "ANALYZE TABLE t": BOUNDARY,
    "ANALYZE SELECT 1": ROWS,
    "SET LOCAL x = 1": SESSION,  # another word for SET SESSION there
    "SET STATEMENT max_statement_time = 1 FOR SELECT 1": ROWS,
}


@pytest.mark.parametrize(("sql", "wanted"), [*BOTH.items(), *WITH_DDL.items()])
def test_where_tables_change_inside_transactions(sql: str, wanted: Reach) -> None:
    """Only what begins or ends a transaction by name is a boundary."""
    assert reach(sql, commits_on_ddl=False) == wanted


@pytest.mark.parametrize(("sql", "wanted"), [*BOTH.items(), *WITHOUT_DDL.items()])
def test_where_a_change_of_tables_commits(sql: str, wanted: Reach) -> None:
    """What changes tables or rights is a boundary too."""
    assert reach(sql, commits_on_ddl=True) == wanted
