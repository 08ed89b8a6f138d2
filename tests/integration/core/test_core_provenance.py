"""The log: which rows each invocation wrote and read, and what it does not hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from apiary.engine.base import Invocation
from apiary.testing import Platform

FILES = {
    "functions/kv/sql/001_tables.sql": """
        CREATE TABLE kv.pair (key int PRIMARY KEY, value int NOT NULL);
        CREATE TABLE kv.pair_two (key int PRIMARY KEY, value_two int NOT NULL);
        CREATE TABLE kv.keyless (n int, o text, v_statement text);
        CREATE TABLE kv.parted (id int, region text, n int, PRIMARY KEY (id, region))
            PARTITION BY LIST (region);
        CREATE TABLE kv.parted_a PARTITION OF kv.parted FOR VALUES IN ('a');
        CREATE TABLE kv.parted_b PARTITION OF kv.parted FOR VALUES IN ('b');
        CREATE TABLE kv.moment (at timestamptz PRIMARY KEY, long interval);
    """,
    "functions/kv/__init__.py": """
        from datetime import datetime
        from apiary import Database, function

        @function
        def insert(db: Database, key: int, value: int) -> None:
            db.execute("INSERT INTO kv.pair (key, value) VALUES ($1, $2)", key, value)

        @function
        def read(db: Database, key: int) -> int | None:
            return db.value("SELECT value FROM kv.pair WHERE key = $1", key)

        @function
        def read_key_and_value(db: Database, key: int) -> int | None:
            row = db.first("SELECT key, value FROM kv.pair WHERE key = $1", key)
            return None if row is None else row.value

        @function
        def update(db: Database, key: int, value: int) -> None:
            db.first("SELECT key, value FROM kv.pair WHERE key = $1", key)
            db.execute("UPDATE kv.pair SET value = $2 WHERE key = $1", key, value)

        @function
        def delete(db: Database, key: int) -> None:
            db.execute("DELETE FROM kv.pair WHERE key = $1", key)

        @function
        def worked_example(db: Database, key: int, value: int) -> int:
            insert(1, value)
            db.first("SELECT key, value FROM kv.pair WHERE key = $1", key)
            insert(key, value)
            row = db.one("SELECT key, value FROM kv.pair WHERE key = $1", key)
            db.execute("UPDATE kv.pair SET value = $2 WHERE key = $1", key, row.value + 1)
            row = db.one("SELECT key, value FROM kv.pair WHERE key = $1", key)
            db.execute("DELETE FROM kv.pair WHERE key = $1", key)
            return row.value

        @function
        def join(db: Database) -> int:
            db.execute("INSERT INTO kv.pair VALUES (1, 2)")
            db.execute("INSERT INTO kv.pair_two VALUES (1, 3)")
            row = db.one(
                "SELECT p.value, t.value_two FROM kv.pair p JOIN kv.pair_two t USING (key)"
            )
            return row.value + row.value_two

        @function
        def read_many(db: Database) -> int:
            return len(db.query("SELECT key, value FROM kv.pair ORDER BY key"))

        @function
        def fails(db: Database, key: int) -> None:
            db.execute("INSERT INTO kv.pair VALUES ($1, 0)", key)
            raise RuntimeError("no")

        @function
        def moment(db: Database, at: datetime) -> None:
            db.execute("INSERT INTO kv.moment VALUES ($1, '1 day')", at)
            db.first("SELECT at FROM kv.moment WHERE at = $1", at)
    """,
}


@pytest.fixture(scope="module")
def shared(make_shared_app: Callable[..., Platform]) -> Platform:
    return make_shared_app(FILES)


@pytest.fixture
def kv(shared: Platform) -> Platform:
    shared.query("TRUNCATE kv.pair, kv.pair_two, kv.keyless, kv.parted, kv.moment")
    shared.query("TRUNCATE apiary.operation, apiary.attempt, provenance.write_event")
    return shared


def writes(app: Platform) -> list[tuple[Any, ...]]:
    rows = app.query(
        "SELECT operation, key, before, after FROM provenance.data_event"
        " WHERE operation <> 'R' ORDER BY event_id, key"
    )
    return [tuple(row.values()) for row in rows]


def pair(key: int, value: int) -> dict[str, int]:
    return {"key": key, "value": value}


def test_writes_have_images_before_and_after_and_their_statement(kv: Platform) -> None:
    kv.query("INSERT INTO kv.pair VALUES (1, 10), (2, 20)")
    kv.query("UPDATE kv.pair SET value = value + 1")
    kv.query(
        "INSERT INTO kv.pair VALUES (2, 0), (3, 30) ON CONFLICT (key) DO UPDATE SET value = 99"
    )
    kv.query("INSERT INTO kv.pair VALUES (3, 0) ON CONFLICT DO NOTHING")
    kv.query("DELETE FROM kv.pair WHERE key < 3")
    assert sorted(writes(kv), key=str) == sorted(
        [
            ("I", {"key": 1}, None, pair(1, 10)),
            ("I", {"key": 2}, None, pair(2, 20)),
            ("U", {"key": 1}, pair(1, 10), pair(1, 11)),
            ("U", {"key": 2}, pair(2, 20), pair(2, 21)),
            ("I", {"key": 3}, None, pair(3, 30)),
            ("U", {"key": 2}, pair(2, 21), pair(2, 99)),
            ("D", {"key": 1}, pair(1, 11), None),
            ("D", {"key": 2}, pair(2, 99), None),
        ],
        key=str,
    )
    rows = kv.query("SELECT DISTINCT run_id, db_user, statement FROM provenance.data_event")
    assert {row["run_id"] for row in rows} == {None}
    assert {row["db_user"] for row in rows} == {"postgres"}
    assert "DELETE FROM kv.pair WHERE key < 3" in {row["statement"] for row in rows}


def test_truncate_logs_every_row_that_it_removes(kv: Platform) -> None:
    kv.query("INSERT INTO kv.pair VALUES (1, 10), (2, 20)")
    kv.query("INSERT INTO kv.parted VALUES (1, 'a', 0), (2, 'b', 0)")
    kv.query("TRUNCATE kv.pair, kv.parted")
    removed = [(key, before) for op, key, before, _ in writes(kv) if op == "T"]
    assert sorted(removed, key=str) == [
        ({"id": 1, "region": "a"}, {"id": 1, "region": "a", "n": 0}),
        ({"id": 2, "region": "b"}, {"id": 2, "region": "b", "n": 0}),
        ({"key": 1}, pair(1, 10)),
        ({"key": 2}, pair(2, 20)),
    ]


def test_an_update_of_the_key_is_listed_under_both_keys(kv: Platform) -> None:
    kv.query("INSERT INTO kv.pair VALUES (1, 10), (2, 20)")
    kv.query("UPDATE kv.pair SET key = key + 10")
    updates = [row for row in writes(kv) if row[0] == "U"]
    assert updates == [
        ("U", {"key": 1}, pair(1, 10), pair(11, 10)),
        ("U", {"key": 11}, pair(1, 10), pair(11, 10)),
        ("U", {"key": 2}, pair(2, 20), pair(12, 20)),
        ("U", {"key": 12}, pair(2, 20), pair(12, 20)),
    ]


def test_a_table_without_a_primary_key_is_logged_without_keys(kv: Platform) -> None:
    kv.query("INSERT INTO kv.keyless VALUES (1, 'x', '')")
    kv.query("UPDATE kv.keyless SET o = 'y'")
    assert writes(kv) == [
        ("I", None, None, {"n": 1, "o": "x", "v_statement": ""}),
        ("U", None, {"n": 1, "o": "x", "v_statement": ""}, {"n": 1, "o": "y", "v_statement": ""}),
    ]


def test_partitions_are_logged_as_their_table_however_they_are_written(kv: Platform) -> None:
    kv.query("INSERT INTO kv.parted VALUES (1, 'a', 0)")
    kv.query("INSERT INTO kv.parted_b VALUES (2, 'b', 0)")
    kv.query("UPDATE kv.parted SET region = 'b' WHERE id = 1")
    kv.query("DELETE FROM kv.parted_b WHERE id = 2")
    rows = kv.query(
        "SELECT relation, operation, key->>'id' AS id FROM provenance.data_event"
        " WHERE operation <> 'R' ORDER BY event_id"
    )
    assert {row["relation"] for row in rows} == {"kv.parted"}
    assert [(row["operation"], row["id"]) for row in rows] == [
        ("I", "1"), ("I", "2"), ("U", "1"), ("U", "1"), ("D", "2"),
    ]  # fmt: skip


def test_keys_and_images_do_not_depend_on_the_session(kv: Platform) -> None:
    kv.call("kv.moment", at="2026-07-01T12:00:00.500000+02:00")
    with psycopg.connect(kv.url, autocommit=True) as connection:
        connection.execute("SET timezone = 'Asia/Tokyo'")
        connection.execute("SET intervalstyle = 'postgres_verbose'")
        connection.execute("UPDATE kv.moment SET long = '2 days'")
    rows = kv.query("SELECT operation, key, after FROM provenance.data_event ORDER BY operation")
    assert {json.dumps(row["key"]) for row in rows} == {'{"at": "2026-07-01T10:00:00.5+00:00"}'}
    assert [row["after"].get("long") for row in rows] == ["P1D", None, "P2D"]


def test_the_worked_example(kv: Platform) -> None:
    outcome = kv.invoke("kv.worked_example", key=10, value=100)
    assert outcome.output == 101
    [row] = kv.query("SELECT function, calls, xid::text FROM provenance.invocation")
    assert [call["function"] for call in row["calls"]] == ["kv.insert", "kv.insert"]
    assert writes(kv) == [
        ("I", {"key": 1}, None, pair(1, 100)),
        ("I", {"key": 10}, None, pair(10, 100)),
        ("U", {"key": 10}, pair(10, 100), pair(10, 101)),
        ("D", {"key": 10}, pair(10, 101), None),
    ]
    reads = kv.query(
        "SELECT key, after, parameters, xid::text FROM provenance.data_event WHERE operation = 'R'"
    )
    assert [(r["key"], r["after"], r["parameters"]) for r in reads] == [
        (None, None, [10]),  # the read that found nothing
        ({"key": 10}, pair(10, 100), [10]),
        ({"key": 10}, pair(10, 101), [10]),
    ]
    assert {r["xid"] for r in reads} == {row["xid"]}


def test_a_join_is_listed_under_both_tables(kv: Platform) -> None:
    assert kv.call("kv.join") == 5
    rows = kv.query(
        "SELECT relation, after FROM provenance.data_event WHERE operation = 'R' ORDER BY relation"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("kv.pair", {"value": 2, "value_two": 3}),
        ("kv.pair_two", {"value": 2, "value_two": 3}),
    ]


def test_a_long_read_is_cut_and_marked(kv: Platform) -> None:
    kv.query("INSERT INTO kv.pair SELECT n, n FROM generate_series(1, 150) n")
    assert kv.call("kv.read_many") == 150
    rows = kv.query("SELECT truncated FROM provenance.data_event WHERE operation = 'R'")
    assert [row["truncated"] for row in rows] == [True] * 100
    [row] = kv.query("SELECT reads FROM apiary.operation")
    assert row["reads"][0]["row_count"] == 150


def test_what_was_rolled_back_left_no_event(kv: Platform) -> None:
    assert kv.invoke("kv.fails", key=1).error
    assert kv.query("SELECT 1 FROM provenance.data_event") == []
    [row] = kv.query("SELECT status, error_type FROM provenance.invocation")
    assert row == {"status": "FAILED", "error_type": "RuntimeError"}


def run(app: Platform, run_id: str, principal: str, function: str, **document: Any) -> None:
    invocation = Invocation(
        run_id=run_id, application="app", function=function, input=json.dumps(document),
        principal=principal, trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )  # fmt: skip
    app.loop.run(app.invoker.invoke(invocation, fresh=True))


def test_the_log_of_several_principals_answers_who_touched_a_row(kv: Platform) -> None:
    run(kv, "w1", "alice", "kv.insert", key=7, value=10)
    run(kv, "w1b", "alice", "kv.insert", key=8, value=20)
    run(kv, "w2", "bob", "kv.update", key=7, value=11)
    run(kv, "w3", "eve", "kv.read_key_and_value", key=8)
    kv.query(  # an attempt of bob's that failed and will be repeated
        "SELECT apiary.log_attempt('w4', 0, 1, 'function', 'kv.update', 'app', NULL, 'bob',"
        " 'RETRIED', '{\"type\": \"TransactionConflict\"}', clock_timestamp(), NULL)"
    )
    run(kv, "w4", "bob", "kv.update", key=7, value=12)
    run(kv, "w5", "alice", "kv.delete", key=8)
    run(kv, "w6", "alice", "kv.insert", key=8, value=99)
    touched = kv.query(
        "SELECT e.run_id, i.principal, e.operation, (e.after->>'value')::int AS value"
        "  FROM provenance.data_event e JOIN provenance.invocation i USING (run_id, seq, xid)"
        " WHERE e.relation = 'kv.pair' AND e.key = '{\"key\": 7}'"
        " ORDER BY i.started_at, e.operation"
    )
    assert [tuple(row.values()) for row in touched] == [
        ("w1", "alice", "I", 10),
        ("w2", "bob", "R", 10),
        ("w2", "bob", "U", 11),
        ("w4", "bob", "R", 11),
        ("w4", "bob", "U", 12),
    ]
    runs = kv.query(
        "SELECT run_id, attempt, status, trace_id FROM provenance.invocation"
        " WHERE run_id = 'w4' ORDER BY started_at"
    )
    assert [row["status"] for row in runs] == ["RETRIED", "SUCCEEDED"]
    assert runs[1]["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    history = kv.query(
        "SELECT operation, before->>'value' AS b, after->>'value' AS a FROM provenance.data_event"
        " WHERE relation = 'kv.pair' AND key = '{\"key\": 8}' AND operation <> 'R'"
        " ORDER BY event_id"
    )
    assert [tuple(row.values()) for row in history] == [
        ("I", None, "20"), ("D", "20", None), ("I", None, "99"),
    ]  # fmt: skip


def test_long_documents_are_compressed_by_lz4_where_the_server_has_it(kv: Platform) -> None:
    rows = kv.query(
        "SELECT a.attcompression::text AS used, s.enumvals AS available"
        " FROM pg_attribute a, pg_settings s WHERE a.attrelid = 'apiary.operation'::regclass"
        " AND a.attname IN ('input', 'output', 'reads') AND s.name = 'default_toast_compression'"
    )
    wanted = "l" if "lz4" in rows[0]["available"] else ""
    assert [row["used"] for row in rows] == [wanted] * 3
