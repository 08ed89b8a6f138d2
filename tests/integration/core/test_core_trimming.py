"""The log is kept in bounds: what is old goes in batches, and nothing else does."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from apiary.engine.trimming import LogTrimmer, Trimmed
from apiary.errors import BadArgument, DeadlineExceeded
from apiary.testing import Platform

MakeApp = Callable[..., Platform]

FILES = {
    "functions/box/__init__.py": """
        from apiary import Database, function

        @function
        def put(db: Database, id: int, n: int) -> int:
            db.execute("INSERT INTO box.item (id, n) VALUES ($1, $2)", id, n)
            return n

        @function
        def count(db: Database) -> int:
            return db.value("SELECT count(*) FROM box.item")
    """,
    "functions/box/sql/001_tables.sql": "CREATE TABLE box.item (id int PRIMARY KEY, n int);",
}
DAY_S = 86400.0
# Moves everything that is logged so far into the past.
AGE = (
    "UPDATE apiary.operation SET started_at = started_at - %s::interval,"
    " finished_at = finished_at - %s::interval",
    "UPDATE apiary.attempt SET started_at = started_at - %s::interval,"
    " finished_at = finished_at - %s::interval",
    "UPDATE provenance.write_event SET at = at - %s::interval",
)


@pytest.fixture(scope="module")
def shared(make_shared_app: Callable[..., Platform]) -> Platform:
    """The application, in one database for all tests here."""
    return make_shared_app(FILES)


@pytest.fixture
def app(shared: Platform) -> Platform:
    """The application with an empty log."""
    shared.query(
        "TRUNCATE apiary.operation, apiary.attempt, apiary.run, provenance.write_event, box.item"
    )
    shared.query("TRUNCATE provenance.write_event")  # which has noted that of box.item
    return shared


def age(app: Platform, by: str = "100 days") -> None:
    for statement in AGE:
        app.query(statement, *[by] * statement.count("%s"))


def attempt(app: Platform, run_id: str) -> None:
    """An attempt that left no record."""
    app.query(
        "SELECT apiary.log_attempt(%s, 0, 1, 'function', 'box.put', 'app', 'd', 'test', 'RETRIED',"
        " '{}', clock_timestamp(), NULL)",
        run_id,
    )


def start_runs(app: Platform, *run_ids: str) -> None:
    app.query(
        "SELECT apiary.start_run(id, 'app', 'd', 'box.flow', false, '{}', 'x', 'test', NULL, NULL,"
        " 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) FROM unnest(%s::text[])"
        " AS id",
        list(run_ids),
    )


def trim(app: Platform, *, delete: bool = True, days: int = 90, **sizes: int) -> list[Trimmed]:
    """Trim up to some days ago; the sums after each batch."""

    async def run() -> list[Trimmed]:
        trimmer = LogTrimmer(app.engine, **sizes)
        before = await trimmer.time_ago(days * DAY_S)
        return [each async for each in trimmer.trim(before, delete=delete)]

    return app.loop.run(run())


def logged(app: Platform) -> dict[str, Any]:
    """How many rows the log has."""
    (row,) = app.query(
        "SELECT (SELECT count(*) FROM apiary.operation) AS operations,"
        " (SELECT count(*) FROM apiary.attempt) AS attempts,"
        " (SELECT count(*) FROM provenance.write_event) AS row_changes"
    )
    return row


def test_what_is_counted_is_what_goes(app: Platform) -> None:
    for n in range(5):
        app.call("box.put", id=n, n=n)
        attempt(app, f"attempt-{n}")
    app.call("box.count")
    age(app)
    app.call("box.put", id=100, n=1)
    attempt(app, "new")
    before = logged(app)
    (*_, counted) = trim(app, delete=False)
    assert logged(app) == before
    assert counted == Trimmed(invocations=6, attempts=5, row_changes=5)
    assert trim(app)[-1] == counted
    assert logged(app) == {"operations": 1, "attempts": 1, "row_changes": 1}
    assert trim(app)[-1] == Trimmed()
    assert app.call("box.count") == 6  # the tables themselves are not the log


def test_batches_are_smaller_than_the_work(app: Platform) -> None:
    many = 300
    for n in range(10):
        app.call("box.put", id=n, n=n)
    # Operations of one transaction, which began at one time, and many pages of the other tables.
    app.query(
        "INSERT INTO apiary.operation (run_id, seq, kind, name, application, deployment, principal,"
        " status, started_at, finished_at) SELECT 'r' || g, 0, 'function', 'box.put', 'app', 'd',"
        " 'test', 'SUCCEEDED', now(), now() FROM generate_series(1, 7) g"
    )
    app.query(
        "INSERT INTO apiary.attempt (run_id, seq, attempt, kind, name, application, principal,"
        " status, error, started_at) SELECT 'r' || g, 0, 1, 'function', 'box.put', 'app', 'test',"
        f" 'RETRIED', '{{}}', now() FROM generate_series(1, {many}) g"
    )
    app.query(f"INSERT INTO box.item SELECT g, 0 FROM generate_series(100, {100 + many - 1}) g")
    age(app)
    steps = trim(app, rows=3, pages=1)
    assert steps[-1] == Trimmed(invocations=17, attempts=many, row_changes=many + 10)
    assert logged(app) == {"operations": 0, "attempts": 0, "row_changes": 0}
    # The ten that began one after the other went by threes.
    assert [each.invocations for each in steps[:3]] == [3, 6, 9]
    for kind in ("attempts", "row_changes"):
        assert len({getattr(each, kind) for each in steps}) > 3


def test_who_stops_keeps_what_was_done_and_the_next_goes_on(app: Platform) -> None:
    for n in range(6):
        app.call("box.put", id=n, n=n)
    age(app)

    async def stop_early() -> None:
        trimmer = LogTrimmer(app.engine, rows=2, pages=1)
        batches = trimmer.trim(await trimmer.time_ago(DAY_S), delete=True)
        await anext(batches)
        await batches.aclose()

    app.loop.run(stop_early())
    assert logged(app) == {"operations": 4, "attempts": 0, "row_changes": 6}
    assert trim(app)[-1] == Trimmed(invocations=4, row_changes=6)


def test_runs_keep_what_is_theirs(app: Platform) -> None:
    start_runs(app, "ended", "unfinished")
    for run_id in ("ended", "unfinished"):
        attempt(app, run_id)
        with psycopg.connect(app.url) as connection:  # a function of the run that writes
            connection.execute(
                "INSERT INTO box.item VALUES (%s, 0)", [1 if run_id == "ended" else 2]
            )
            connection.execute(
                "INSERT INTO apiary.operation (run_id, seq, kind, name, application, deployment,"
                " principal, status, started_at, finished_at) VALUES (%s, 1, 'function', 'box.put',"
                " 'app', 'd', 'test', 'SUCCEEDED', clock_timestamp(), clock_timestamp())",
                [run_id],
            )
    app.query("SELECT apiary.cancel_run('ended', NULL)")
    app.query("INSERT INTO box.item VALUES (3, 0)")  # by hand: belongs to nothing
    app.call("box.put", id=4, n=4)
    age(app)
    assert trim(app, delete=False)[-1] == Trimmed(invocations=1, row_changes=3)
    assert trim(app)[-1] == Trimmed(invocations=1, row_changes=3)
    assert logged(app) == {"operations": 4, "attempts": 2, "row_changes": 1}
    (kept,) = app.query("SELECT run_id, key FROM provenance.data_event")
    assert kept == {"run_id": "unfinished", "key": {"id": 2}}


def test_an_invocation_that_has_not_ended_before_the_time_stays(app: Platform) -> None:
    app.invoke("box.put", run_id="long", id=1, n=1)
    age(app)
    app.query("UPDATE apiary.operation SET finished_at = clock_timestamp()")
    assert trim(app)[-1] == Trimmed(row_changes=1)  # what it wrote was written before
    assert [row["run_id"] for row in app.query("SELECT run_id FROM apiary.operation")] == ["long"]


def test_a_trimmed_run_id_is_a_new_one(app: Platform) -> None:
    app.invoke("box.put", run_id="again", id=1, n=1)
    assert app.invoke("box.put", run_id="again", id=1, n=1).replayed
    age(app)
    trim(app)
    app.query("DELETE FROM box.item")
    assert not app.invoke("box.put", run_id="again", id=1, n=1).replayed


def test_a_time_to_come_is_refused(app: Platform) -> None:
    trimmer = LogTrimmer(app.engine)
    ((now,),) = [row.values() for row in app.query("SELECT clock_timestamp()")]
    with pytest.raises(BadArgument) as early:
        app.loop.run(trimmer.time_past(now + dt.timedelta(days=1)))
    assert early.value.path == "before"
    assert early.value.hint
    assert app.loop.run(trimmer.time_past(now)) == now
    with pytest.raises(BadArgument) as old:
        app.loop.run(trimmer.time_ago(1e15))
    assert old.value.path == "older_than"


def test_a_deadline_stops_it_between_two_batches(app: Platform) -> None:
    app.call("box.put", id=1, n=1)
    age(app)

    async def run(timeout_s: float) -> list[Trimmed]:
        trimmer = LogTrimmer(app.engine)
        sums = trimmer.trim(await trimmer.time_ago(DAY_S), delete=True, timeout_s=timeout_s)
        return [each async for each in sums]

    with pytest.raises(DeadlineExceeded) as late:
        app.loop.run(run(0))
    assert late.value.row_changes == 0
    assert "goes on" in str(late.value.hint)
    assert app.loop.run(run(60))[-1] == Trimmed(invocations=1, row_changes=1)


def test_invocations_go_on_meanwhile(app: Platform) -> None:
    for n in range(20):
        app.call("box.put", id=n, n=n)
    age(app)
    # The batch is done and its transaction open: what it has deleted is still locked.
    with psycopg.connect(app.url) as connection:
        for kind in ("invocations", "attempts", "row_changes"):
            connection.execute(
                f"SELECT apiary.trim_{kind}(clock_timestamp() - interval '1 day', NULL, 1000, true)"
            )
        assert app.call("box.put", id=100, n=7) == 7
        connection.rollback()
    assert trim(app, delete=False)[-1] == Trimmed(invocations=20, row_changes=20)


def test_invocations_and_two_trims_side_by_side(app: Platform) -> None:
    for n in range(60):
        app.call("box.put", id=n, n=n)
    age(app)
    trims: list[Trimmed] = []
    threads = [
        threading.Thread(target=lambda: trims.append(trim(app, rows=5, pages=1)[-1]))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for n in range(30):
        assert app.call("box.put", id=1000 + n, n=n) == n
    for thread in threads:
        thread.join()
    # Each row was deleted, and counted, by one of them.
    assert sum(each.invocations for each in trims) == 60
    assert sum(each.row_changes for each in trims) == 60
    assert logged(app) == {"operations": 30, "attempts": 0, "row_changes": 30}


def test_a_batch_looks_at_no_more_than_its_part(app: Platform) -> None:
    app.query(
        "INSERT INTO provenance.write_event (relation, operation, before)"
        " SELECT 'box.item', 'U', jsonb_build_object('text', repeat('x', 200))"
        " FROM generate_series(1, 5000)"
    )
    # Many operations of unfinished runs, which no batch should have to read.
    start_runs(app, *(f"unfinished-{n}" for n in range(200)))
    app.query(
        "INSERT INTO apiary.operation (run_id, seq, kind, name, application, deployment, principal,"
        " status, started_at, finished_at, xid) SELECT 'unfinished-' || g % 200, g, 'step',"
        " 'box.step', 'app', 'd', 'test', 'SUCCEEDED', clock_timestamp(), clock_timestamp(),"
        " g::text::xid8 FROM generate_series(1, 2000) g"
    )
    age(app)
    app.query("ANALYZE apiary.run, apiary.operation, provenance.write_event")
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute("LOAD 'auto_explain'")
        connection.execute("SET auto_explain.log_min_duration = 0")
        connection.execute("SET auto_explain.log_nested_statements = on")
        connection.execute("SET client_min_messages = log")
        plans: list[str] = []
        connection.add_notice_handler(lambda notice: plans.append(notice.message_primary or ""))
        for kind in ("invocations", "attempts", "row_changes"):
            connection.execute(
                f"SELECT apiary.trim_{kind}(clock_timestamp() - interval '1 day', NULL, 10, true)"
            )
    found = "\n".join(plans)
    assert "Seq Scan" not in found
    assert "Materialize" not in found
    assert "Join" not in found
    assert found.count("Tid Range Scan") == 2
    for index in ("operation_started_at_idx", "operation_xid_idx", "run_pkey"):
        assert index in found
