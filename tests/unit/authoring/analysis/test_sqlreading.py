"""What one SQL statement reads, writes and may do."""

from __future__ import annotations

import pytest

from apiary.authoring.analysis.sqlparameters import parse_ready
from apiary.authoring.analysis.sqlreading import SqlReading, read_sql

# statement, kind, reads, writes; unqualified tables are those of schema `hotel`
STATEMENTS = [
    ("SELECT 1", "read", "", ""),
    ("SELECT a FROM room WHERE id = $1", "read", "hotel.room", ""),
    ("select A from ROOM", "read", "hotel.room", ""),
    ('SELECT a FROM "Room"', "read", "hotel.Room", ""),
    ('SELECT a FROM "Bar"."Room", BAR.Room', "read", "Bar.Room bar.room", ""),
    ("SELECT a FROM db.bar.room", "read", "bar.room", ""),
    ("SELECT a FROM ONLY room", "read", "hotel.room", ""),
    ("TABLE room", "read", "hotel.room", ""),
    ("VALUES (1, 2), (3, 4)", "read", "", ""),
    ("(SELECT 1 FROM a) UNION ALL (SELECT 2 FROM b)", "read", "hotel.a hotel.b", ""),
    ("SELECT 1 FROM a INTERSECT SELECT 1 FROM b EXCEPT SELECT 1 FROM c.c", "read",
     "hotel.a hotel.b c.c", ""),
    ("SELECT * FROM a JOIN b USING (x) LEFT JOIN c ON true, d", "read",
     "hotel.a hotel.b hotel.c hotel.d", ""),
    ("SELECT * FROM a x JOIN LATERAL (SELECT 1 FROM b WHERE b.i = x.i) y ON true", "read",
     "hotel.a hotel.b", ""),
    ("SELECT (SELECT max(i) FROM b) FROM a WHERE EXISTS (SELECT 1 FROM c)", "read",
     "hotel.a hotel.b hotel.c", ""),
    ("SELECT 1 FROM a WHERE x IN (SELECT y FROM b) AND z = ANY(ARRAY(SELECT q FROM c))", "read",
     "hotel.a hotel.b hotel.c", ""),
    ("SELECT s.a FROM (SELECT a FROM room) AS s", "read", "hotel.room", ""),
    ("SELECT room FROM room AS r(a, b)", "read", "hotel.room", ""),
    ("SELECT * FROM pg_class JOIN information_schema.tables ON true", "read",
     "pg_catalog.pg_class information_schema.tables", ""),
    # common table expressions
    ("WITH x AS (SELECT 1 FROM a) SELECT * FROM x", "read", "hotel.a", ""),
    ("WITH x AS (SELECT 1 FROM a), y AS (SELECT * FROM x) SELECT * FROM y, X", "read",
     "hotel.a", ""),
    ("WITH room AS (SELECT * FROM room) SELECT * FROM room", "read", "hotel.room", ""),
    ("WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a, b", "read", "hotel.b", ""),
    ("WITH x AS (SELECT 1) SELECT * FROM hotel.x", "read", "hotel.x", ""),
    ('WITH x AS (SELECT 1) SELECT * FROM "X"', "read", "hotel.X", ""),
    ("WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t, a) SELECT * FROM t",
     "read", "hotel.a", ""),
    ("WITH x AS (SELECT 1) SELECT * FROM x UNION SELECT * FROM x JOIN b USING (i)", "read",
     "hotel.b", ""),
    ("SELECT * FROM x WHERE i IN (WITH x AS (SELECT 1) SELECT * FROM x)", "read", "hotel.x", ""),
    # writes
    ("INSERT INTO room (a) VALUES ($1)", "write", "", "hotel.room"),
    ("INSERT INTO room DEFAULT VALUES RETURNING id", "write", "", "hotel.room"),
    ("INSERT INTO room AS r (a) VALUES ($1) ON CONFLICT (a) DO UPDATE SET n = r.n + excluded.n",
     "write", "", "hotel.room"),
    ("INSERT INTO room VALUES ($1) ON CONFLICT DO NOTHING RETURNING (SELECT 1 FROM b)", "write",
     "hotel.b", "hotel.room"),
    ("INSERT INTO room OVERRIDING SYSTEM VALUE VALUES ($1,$2)", "write", "", "hotel.room"),
    ("insert into room overriding  user value select 'OVERRIDING USER VALUE' from a", "write",
     "hotel.a", "hotel.room"),
    ("INSERT INTO bar.room SELECT * FROM old.room", "write", "old.room", "bar.room"),
    ("INSERT INTO room (a) SELECT * FROM unnest($1::int[], $2::text[])", "write", "",
     "hotel.room"),
    ("WITH x AS (SELECT 1 FROM a) INSERT INTO x SELECT * FROM x", "write", "hotel.a", "hotel.x"),
    ("UPDATE room SET a = $1 WHERE id = $2", "write", "", "hotel.room"),
    ("UPDATE ONLY room AS r SET a = s.a FROM stay AS s WHERE s.id = r.id", "write", "hotel.stay",
     "hotel.room"),
    ("UPDATE room SET (a, b) = (SELECT 1, 2 FROM s)", "write", "hotel.s", "hotel.room"),
    ("UPDATE room SET a = (SELECT max(a) FROM room)", "write", "hotel.room", "hotel.room"),
    ("DELETE FROM room WHERE id = $1 RETURNING *", "write", "", "hotel.room"),
    ("DELETE FROM room USING stay WHERE stay.id = room.id", "write", "hotel.stay", "hotel.room"),
    ("WITH gone AS (DELETE FROM room RETURNING *) INSERT INTO old SELECT * FROM gone", "write",
     "", "hotel.room hotel.old"),
    ("WITH gone AS (DELETE FROM room RETURNING *) SELECT count(*) FROM gone", "write", "",
     "hotel.room"),
    ("MERGE INTO a.t USING b.s ON t.id = s.id WHEN MATCHED AND s.x THEN DELETE"
     " WHEN MATCHED THEN UPDATE SET x = s.x WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
     "write", "b.s", "a.t"),
    ("MERGE INTO t USING (SELECT * FROM s) AS s ON t.id = s.id WHEN MATCHED THEN DO NOTHING",
     "write", "hotel.s", "hotel.t"),
    ("TRUNCATE room, bar.room CASCADE", "write", "", "hotel.room bar.room"),
    ("LOCK TABLE ONLY room, bar.x IN SHARE ROW EXCLUSIVE MODE NOWAIT", "write", "",
     "hotel.room bar.x"),
    ("lock room;", "write", "", "hotel.room"),
    # row locks
    ("SELECT * FROM room FOR UPDATE", "write", "hotel.room", ""),
    ("SELECT * FROM room r JOIN stay s ON true FOR NO KEY UPDATE OF r SKIP LOCKED", "write",
     "hotel.room hotel.stay", ""),
    ("SELECT * FROM room FOR SHARE NOWAIT", "write", "hotel.room", ""),
    ("SELECT 1 WHERE EXISTS (SELECT 1 FROM room FOR KEY SHARE)", "write", "hotel.room", ""),
    # functions
    ("SELECT now(), coalesce(a, 0), count(*) FROM room", "read", "hotel.room", ""),
    ("SELECT * FROM generate_series(1, $1) AS g", "read", "", ""),
    ("SELECT * FROM unnest($1::int[]) WITH ORDINALITY AS u(x, n)", "read", "", ""),
    ("SELECT * FROM jsonb_to_recordset($1) AS x(a int), room", "read", "hotel.room", ""),
    ("SELECT * FROM ROWS FROM (generate_series(1, 2), unnest($1::int[]))", "read", "", ""),
    ("SELECT currval('s'), pg_catalog.lower(a) FROM room", "read", "hotel.room", ""),
    ("SELECT nextval('room_id')", "write", "", ""),
    ("SELECT pg_catalog.nextval('room_id')", "write", "", ""),
    ("SELECT setval('room_id', 1)", "write", "", ""),
    ("SELECT pg_advisory_xact_lock($1)", "write", "", ""),
    ("SELECT a FROM room WHERE pg_try_advisory_lock(a)", "write", "hotel.room", ""),
    ("SELECT pg_notify('c', $1)", "write", "", ""),
    ("SELECT set_config('a.b', $1, true)", "write", "", ""),
    ("SELECT * FROM dblink('c', 'SELECT 1') AS t(a int)", "write", "", ""),
    ("SELECT dblink_exec('c', 'DELETE FROM x')", "write", "", ""),
    # operators and notations that look like something else
    ("SELECT a ? $1, a ?| $2, a @> $3, a #>> '{x}', a->>'b' FROM room", "read", "hotel.room", ""),
    ("SELECT 'INSERT INTO x', $$DELETE FROM y; $9$$, E'\\'; DROP' FROM room", "read",
     "hotel.room", ""),
    ("SELECT a /* FROM b */ FROM room -- , c", "read", "hotel.room", ""),
    ("SELECT DISTINCT ON (a) a, sum(b) FILTER (WHERE c) OVER (PARTITION BY d) FROM room"
     " ORDER BY a LIMIT $1 OFFSET $2", "read", "hotel.room", ""),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "kind", "reads", "writes"), STATEMENTS)
def test_tables_and_kind(sql: str, kind: str, reads: str, writes: str) -> None:
    reading = read_sql(sql, "hotel")
    assert reading.problems == ()
    assert reading.unknown == ()
    assert (reading.kind, reading.reads, reading.writes) == (
        kind,
        frozenset(reads.split()),
        frozenset(writes.split()),
    )


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT 1", 0),
        ("SELECT $1, $2, $1", 2),
        ("SELECT f($1,$2,$3)", 3),
        ("INSERT INTO t VALUES ($1,$2),($3,$4)", 4),
        ("SELECT $1::int[], $2::text", 2),
        ("SELECT $1,$2,$3,$4,$5,$6,$7,$8,$9,$10", 10),
        ("""SELECT '$7', "$8", $tag$ $9 $tag$, $1 -- $5 \n /* $6 */""", 1),
    ],
)
def test_parameters_are_counted_outside_strings_and_comments(sql: str, parameters: int) -> None:
    reading = read_sql(sql, "hotel")
    assert reading.problems == ()
    assert reading.parameters == parameters


@pytest.mark.parametrize(
    ("sql", "message", "at"),
    [
        ("SELECT $0", "$0 is not a parameter", "$0"),
        ("SELECT $1, $3", "uses $3 but not $2", "$3"),
        ("SELECT $2,$5", "uses $5 but not $1, $3, $4", "$5"),
        ("SELECT a FROM t WHERE a = %s", "written $1, $2", "%s"),
        ("SELECT a FROM t WHERE a = :name", "written $1, $2", ":name"),
        ("SELECT $name", "named 'name'", "$name"),
    ],
)
def test_wrong_parameters_are_problems(sql: str, message: str, at: str) -> None:
    (problem,) = read_sql(sql, "hotel").problems
    assert message in problem.message
    assert sql[problem.offset :].startswith(at)


@pytest.mark.parametrize(
    ("sql", "message", "at"),
    [
        ("SELECT a FRM t WHERE b", "syntax error at 't'", "t WHERE"),
        ("SELECT a,\n  b FROM t\n WHERE (c", "Expecting )", "c"),
        ("SELECT $1,$2,$3 FRM t WHERE b", "syntax error at 't'", "t WHERE"),
        ("SELECT 'abc", "syntax error: Missing '", ""),
        ("SELEC a FROM t", "'SELEC' does not begin a statement", "SELEC"),
        ("DELETE room WHERE a", "DELETE needs FROM", "DELETE"),
        ("EXPLAIN SELECT 1", "'EXPLAIN' does not begin", "EXPLAIN"),
        ("LOCK", "LOCK names no table", ""),
        ("LOCK TABLE a b c", "syntax error in the tables of LOCK", "a b c"),
        ("", "is empty", ""),
        (" -- nothing", "is empty", ""),
        ("SELECT 1; DELETE FROM t", "more than one SQL statement", "DELETE"),
        ("SELECT $1,$2; SELECT 2", "more than one SQL statement", "SELECT 2"),
    ],
)
def test_bad_sql_is_a_problem_where_it_is(sql: str, message: str, at: str) -> None:
    (problem,) = read_sql(sql, "hotel").problems
    assert message in problem.message
    assert sql[problem.offset :].startswith(at)


@pytest.mark.parametrize("sql", ["SELECT 1;", "SELECT 1; -- done", "SELECT 1;;", "SELECT ';'"])
def test_a_semicolon_alone_is_no_second_statement(sql: str) -> None:
    assert read_sql(sql, "hotel").problems == ()


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("BEGIN", "BEGIN is refused: a function is one transaction"),
        ("START TRANSACTION", "START is refused: a function is one transaction"),
        ("commit", "COMMIT is refused: a function is one transaction"),
        ("END", "one transaction"),
        ("ROLLBACK", "raise an exception to roll it back"),
        ("ABORT", "one transaction"),
        ("SAVEPOINT s", "one transaction"),
        ("RELEASE SAVEPOINT s", "one transaction"),
        ("ROLLBACK TO SAVEPOINT s", "one transaction"),
        ("PREPARE TRANSACTION 'x'", "one transaction"),
        ("CREATE TABLE t (a int)", "functions/<domain>/sql/"),
        ("CREATE TEMP TABLE t AS SELECT 1", "functions/<domain>/sql/"),
        ("ALTER TABLE t ADD a int", "functions/<domain>/sql/"),
        ("DROP TABLE t", "functions/<domain>/sql/"),
        ("GRANT SELECT ON t TO u", "functions/<domain>/sql/"),
        ("COMMENT ON TABLE t IS 'x'", "functions/<domain>/sql/"),
        ("REFRESH MATERIALIZED VIEW v", "functions/<domain>/sql/"),
        ("SELECT * INTO t FROM s", "SELECT INTO is refused"),
        ("SET x = 1", "set_config"),
        ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET is refused"),
        ("RESET ALL", "set_config"),
        ("COPY t FROM STDIN", "execute_many"),
        ("DO $$ BEGIN END $$", "DO is refused"),
        ("CALL p(1)", "CALL is refused"),
        ("NOTIFY c, 'x'", "pg_notify"),
        ("LISTEN c", "LISTEN is refused"),
        ("SHOW x", "current_setting"),
    ],
)
def test_what_a_function_may_not_run_is_refused(sql: str, message: str) -> None:
    reading = read_sql(sql, "hotel")
    assert any(message in problem.message for problem in reading.problems)
    assert len(reading.problems) == 1


@pytest.mark.parametrize(
    ("sql", "function"),
    [
        ("SELECT hotel.reserve($1)", "hotel.reserve()"),
        ("SELECT Hotel.Reserve($1)", "hotel.reserve()"),
        ("SELECT db.hotel.reserve($1)", "hotel.reserve()"),
        ("SELECT hotel.max(1) FROM room", "hotel.max()"),
        ("SELECT * FROM hotel.search($1) AS s", "hotel.search()"),
        ("SELECT * FROM room, LATERAL hotel.search(room.id) AS s", "hotel.search()"),
        ("INSERT INTO t SELECT hotel.next()", "hotel.next()"),
        ("SELECT query_to_xml('DELETE FROM t', true, true, '')", "query_to_xml()"),
    ],
)
def test_functions_whose_effects_are_not_known(sql: str, function: str) -> None:
    reading = read_sql(sql, "hotel")
    assert reading.problems == ()
    assert [function in each.message for each in reading.unknown] == [True]


def test_unqualified_functions_are_named() -> None:
    reading = read_sql("SELECT to_tsquery($1), reserve(2), count(*), hotel.f(1)", "hotel")
    assert reading.functions == {"to_tsquery", "reserve"}


def test_reading_reports_and_does_not_log(caplog: pytest.LogCaptureFixture) -> None:
    for sql in ("CALL p(1)", "LOCK TABLE a", "DO $$ $$", "SELECT 1"):
        assert isinstance(read_sql(sql, "hotel"), SqlReading)
    assert caplog.records == []


def test_offsets_survive_the_blanks_after_parameters() -> None:
    sql = "SELECT $1,$2,$10 FROM t"
    ready = parse_ready(sql)
    assert ready.text == "SELECT $1 ,$2 ,$10  FROM t"
    assert ready.offsets == {1: 7, 2: 10, 10: 13}
    for character in ",FROMt":
        assert sql[ready.original(ready.text.index(character))] == character
