"""Plans that were stored with a row for each operation are kept by the next table script."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from apiary.testing import TestServer
from tests.conftest import REPOSITORY

SCRIPTS = REPOSITORY / "functions" / "recycle" / "sql"
OPS = (
    "SELECT plan_id, pipeline, stage, op, home, micro_batch, start_us, end_us FROM recycle.op"
    " ORDER BY 1, 3, 5, 6, 4"
)


@pytest.fixture
def before(apiary_server: TestServer) -> Iterator[psycopg.Connection]:
    """The tables of before, with a plan of 2x2x3 that is sealed and one that is not."""
    name = apiary_server.create_empty_database()
    try:
        with psycopg.connect(apiary_server.url(name), autocommit=True) as connection:
            connection.execute("CREATE SCHEMA recycle")
            connection.execute((SCRIPTS / "001_tables.sql").read_bytes())
            _store_plans(connection)
            yield connection
    finally:
        apiary_server.drop_database(name)


def _store_plans(connection: psycopg.Connection) -> None:
    connection.execute("INSERT INTO recycle.profile VALUES ('p', 'samples', 2, 'r')")
    connection.execute(
        "INSERT INTO recycle.plan_set VALUES"
        " ('s', 'p', 2, 2, 3, 0, 'stagger', true, 'greedy', 1, 1, 'counts', '{}', 'r')"
    )
    connection.execute(
        "INSERT INTO recycle.plan (plan_set_id, plan_key, counts, failures, sealed, run_id)"
        " SELECT 's', key, '{0,0}', 0, false, 'r' FROM unnest('{sealed,draft}'::text[]) AS key"
    )
    # Each operation of a stage is as long as the others of its kind, and starts at its own time.
    connection.execute(
        "INSERT INTO recycle.op SELECT plan_id, (home + micro_batch) % 2, stage, op, home,"
        "       micro_batch, start_us, start_us + ascii(op) + stage"
        "  FROM recycle.plan, generate_series(0, 1) stage, generate_series(0, 1) home,"
        "       generate_series(0, 2) micro_batch, unnest('{F,I,W}'::text[]) op,"
        "       LATERAL (SELECT 1000 * micro_batch + 100 * home + 10 * stage + ascii(op))"
        "       AS t (start_us)"
    )
    connection.execute(
        "UPDATE recycle.plan SET sealed = true, iteration_us = 9, makespan_us = 9,"
        " lower_bound_us = 9, status = 'optimal', engine = 'greedy', wall_ms = 0"
        " WHERE plan_key = 'sealed'"
    )


def _apply(connection: psycopg.Connection) -> None:
    with connection.transaction():
        connection.execute((SCRIPTS / "002_cells.sql").read_bytes())


def test_stored_plans_are_kept(before: psycopg.Connection) -> None:
    (sealed,) = before.execute("SELECT plan_id FROM recycle.plan WHERE sealed").fetchall()
    ops = [row for row in before.execute(OPS) if row[0] == sealed[0]]
    assert len(ops) == 3 * 2 * 2 * 3
    _apply(before)
    assert before.execute(OPS).fetchall() == ops
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
        before.execute("DELETE FROM recycle.cells")


def test_a_plan_that_cells_cannot_hold_is_not_lost(before: psycopg.Connection) -> None:
    before.execute("SET session_replication_role = replica")  # the triggers sleep
    before.execute("UPDATE recycle.op SET end_us = end_us + 1 WHERE plan_id = 1 AND start_us = 80")
    ops = before.execute(OPS).fetchall()
    with pytest.raises(psycopg.errors.RaiseException, match=r"operations of plans \{1\} are not"):
        _apply(before)
    assert before.execute(OPS).fetchall() == ops
