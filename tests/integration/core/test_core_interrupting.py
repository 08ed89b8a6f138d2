"""Stopping what runs too long, and surviving what is cut off."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest

from apiary.engine.base import Invocation, Outcome
from apiary.engine.statements import Statement
from apiary.errors import ApiaryError, Cancelled, DeadlineExceeded
from apiary.local import PrivateCluster
from apiary.testing import FAST_SETTINGS, Platform, TestServer

MakeApp = Callable[..., Platform]
WaitUntil = Callable[..., None]

FILES = {
    "functions/slow/sql/001_tables.sql": """
        CREATE TABLE slow.mark (id int PRIMARY KEY);
        INSERT INTO slow.mark VALUES (0);
    """,
    "functions/slow/__init__.py": """
        import time
        from apiary import Database, function

        def mark(db: Database, id: int) -> None:
            db.execute("INSERT INTO slow.mark VALUES ($1)", id)

        @function
        def quick(db: Database, id: int) -> int:
            mark(db, id)
            return id

        @function(timeout_s=0.3)
        def in_sleep(db: Database) -> None:
            mark(db, 1)
            db.value("SELECT pg_sleep(60)")

        @function(timeout_s=0.3)
        def on_lock(db: Database) -> None:
            mark(db, 1)
            db.execute("UPDATE slow.mark SET id = 0 WHERE id = 0")

        @function(timeout_s=0.3)
        def in_python(db: Database) -> None:
            mark(db, 1)
            while True:
                pass

        @function(timeout_s=0.3)
        def swallows_exception(db: Database) -> None:
            mark(db, 1)
            while True:
                try:
                    sum(range(1000))
                except Exception:
                    pass

        @function(timeout_s=0.3)
        def swallows_everything(db: Database) -> None:
            mark(db, 1)
            while True:
                try:
                    sum(range(1000))
                except BaseException:
                    pass

        @function(timeout_s=0.3)
        def swallows_in_the_database(db: Database) -> None:
            mark(db, 1)
            while True:
                try:
                    db.value("SELECT pg_sleep(0.01)")
                except BaseException:
                    pass

        @function(timeout_s=0.3)
        def comes_back(db: Database) -> str:
            mark(db, 1)
            try:
                db.value("SELECT pg_sleep(60)")
            except BaseException:
                return "as if nothing had happened"

        @function
        def long_sleep(db: Database, id: int) -> int:
            mark(db, id)
            db.value("SELECT pg_sleep(60)")
            return id

        @function
        def long_loop(db: Database, id: int) -> int:
            mark(db, id)
            while True:
                pass

        @function
        def once_slow(db: Database, id: int) -> int:
            mark(db, id)
            # The first attempt waits here for a lock, a later one does not.
            db.value("SELECT pg_advisory_xact_lock_shared(7)")
            return id
    """,
}


@pytest.fixture(scope="module")
def shared(make_shared_app: MakeApp) -> Platform:
    return make_shared_app(FILES)


@pytest.fixture
def slow(shared: Platform) -> Iterator[Platform]:
    shared.query("TRUNCATE apiary.operation, apiary.attempt; DELETE FROM slow.mark WHERE id <> 0")
    yield shared
    assert shared.call("slow.quick", id=99) == 99  # whatever happened, it goes on


def marks(app: Platform) -> list[int]:
    return [row["id"] for row in app.query("SELECT id FROM slow.mark WHERE id > 0 ORDER BY id")]


def working(app: Platform) -> list[int]:
    """The engine's sessions that run a function now."""
    rows = app.query(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND state <> 'idle' AND query LIKE '%%apiary.invoke%%' AND pid <> pg_backend_pid()"
    )
    return [row["pid"] for row in rows]


def start(
    app: Platform, function: str, *, run_id: str, deadline_s: float | None = None, **document: Any
) -> Future[Outcome]:
    """Begin an invocation in the platform's loop; the future can be cancelled."""
    invocation = Invocation(
        run_id=run_id, application="app", function=function, input=json.dumps(document),
        principal="test",
    )  # fmt: skip
    work = app.invoker.invoke(invocation, fresh=True, deadline_s=deadline_s)
    return asyncio.run_coroutine_threadsafe(work, app.loop.loop)


@pytest.mark.parametrize(
    "function",
    [
        "in_sleep",
        "in_python",
        "swallows_exception",
        "swallows_everything",
        "swallows_in_the_database",
        "comes_back",
    ],
)
def test_a_timeout_stops_the_body_whatever_it_does(slow: Platform, function: str) -> None:
    with pytest.raises(DeadlineExceeded):
        slow.invoke(f"slow.{function}")
    assert marks(slow) == []
    [attempt] = slow.query("SELECT name, status FROM apiary.attempt")
    assert attempt == {"name": f"slow.{function}", "status": "TIMED_OUT"}
    assert slow.query("SELECT 1 FROM apiary.operation") == []
    assert working(slow) == []


def test_a_timeout_stops_a_body_that_waits_for_a_lock(slow: Platform) -> None:
    with psycopg.connect(slow.url) as holder:
        holder.execute("SELECT FROM slow.mark WHERE id = 0 FOR UPDATE")
        with pytest.raises(DeadlineExceeded):
            slow.invoke("slow.on_lock")
    assert marks(slow) == []


@pytest.mark.parametrize("function", ["slow.long_sleep", "slow.long_loop"])
def test_a_deadline_stops_the_statement_and_the_loop(
    slow: Platform, wait_until: WaitUntil, function: str
) -> None:
    future = start(slow, function, run_id="d", deadline_s=0.4, id=1)
    with pytest.raises(DeadlineExceeded, match=r"within 0\.4 s"):
        future.result(timeout=30)
    wait_until(lambda: not working(slow), within_s=5)
    assert marks(slow) == []
    assert [r["status"] for r in slow.query("SELECT status FROM apiary.attempt")] == ["TIMED_OUT"]


@pytest.mark.parametrize("function", ["slow.long_sleep", "slow.long_loop"])
def test_cancelling_the_caller_stops_the_statement_and_the_loop(
    slow: Platform, wait_until: WaitUntil, function: str
) -> None:
    future = start(slow, function, run_id="c", id=1)
    wait_until(lambda: working(slow))
    future.cancel()
    wait_until(lambda: not working(slow), within_s=5)
    wait_until(lambda: slow.query("SELECT 1 FROM apiary.attempt WHERE status = 'CANCELLED'"))
    assert marks(slow) == []


@pytest.mark.parametrize("function", ["slow.long_sleep", "slow.long_loop"])
def test_an_administrator_cancels_the_statement(
    slow: Platform, wait_until: WaitUntil, function: str
) -> None:
    future = start(slow, function, run_id="a", id=1)
    wait_until(lambda: working(slow))
    slow.query("SELECT pg_cancel_backend(%s)", working(slow)[0])
    with pytest.raises(Cancelled):
        future.result(timeout=30)
    assert marks(slow) == []
    assert [r["status"] for r in slow.query("SELECT status FROM apiary.attempt")] == ["CANCELLED"]


def test_a_terminated_backend_is_tried_again_and_takes_effect_once(
    slow: Platform, wait_until: WaitUntil
) -> None:
    with psycopg.connect(slow.url, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(7)")
        future = start(slow, "slow.once_slow", run_id="t", id=1)
        wait_until(lambda: working(slow))
        slow.query("SELECT pg_terminate_backend(%s)", working(slow)[0])
    outcome = future.result(timeout=30)
    assert (outcome.output, marks(slow)) == (1, [1])
    rows = slow.query("SELECT attempt, status FROM provenance.invocation ORDER BY attempt")
    assert [(row["attempt"], row["status"]) for row in rows] == [(1, "RETRIED"), (2, "SUCCEEDED")]


def test_a_loop_in_a_terminated_backend_ends(slow: Platform, wait_until: WaitUntil) -> None:
    future = start(slow, "slow.long_loop", run_id="l", deadline_s=20, id=1)
    wait_until(lambda: working(slow))
    [pid] = working(slow)
    slow.query("SELECT pg_terminate_backend(%s)", pid)
    wait_until(lambda: pid not in working(slow))
    future.cancel()
    wait_until(lambda: slow.query("SELECT 1 FROM apiary.attempt WHERE status = 'CANCELLED'"))
    assert working(slow) == []
    assert marks(slow) == []


def test_a_reply_that_is_lost_after_the_commit_is_read_from_the_record(
    slow: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Statement] = []
    value = slow.engine._value

    async def losing(statement: Statement, parameters: Any, session: Any) -> Any:
        result = await value(statement, parameters, session)
        if b"apiary.invoke" in statement.text and not lost:
            lost.append(statement)
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return result

    monkeypatch.setattr(slow.engine, "_value", losing)
    outcome = slow.invoke("slow.quick", id=5)
    assert (outcome.output, outcome.replayed, len(lost)) == (5, True, 1)
    assert marks(slow) == [5]
    assert slow.query("SELECT 1 FROM apiary.attempt") == []


def test_connections_that_broke_while_idle_cost_one_attempt_each_at_most(slow: Platform) -> None:
    for number in range(3):
        slow.invoke("slow.quick", id=10 + number)
    slow.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    started = time.monotonic()
    for number in range(3):
        assert slow.call("slow.quick", id=20 + number) == 20 + number
    assert marks(slow) == [10, 11, 12, 20, 21, 22]
    assert time.monotonic() - started < 10  # within the budget of a single call


def test_a_restart_of_the_database_between_and_during_calls(
    make_workshop: Callable[..., Any], test_directory: Any, wait_until: WaitUntil
) -> None:
    cluster = PrivateCluster(test_directory / "postgres", settings=FAST_SETTINGS)
    cluster.start()
    try:
        workshop = make_workshop(TestServer(cluster.url()))
        app = workshop.make(FILES)
        assert app.call("slow.quick", id=1) == 1
        cluster.restart()
        assert app.call("slow.quick", id=2) == 2
        holder = psycopg.connect(app.url, autocommit=True)
        holder.execute("SELECT pg_advisory_lock(7)")
        future = start(app, "slow.once_slow", run_id="r", id=3)
        wait_until(lambda: working(app))
        cluster.restart("immediate")
        assert future.result(timeout=30).output == 3
        assert marks(app) == [1, 2, 3]
        cluster.stop()
        invocation = start(app, "slow.quick", run_id="down", deadline_s=1.0, id=4)
        with pytest.raises(ApiaryError) as caught:
            invocation.result(timeout=30)
        assert caught.value.grpc_code in ("DEADLINE_EXCEEDED", "UNAVAILABLE")
        cluster.start()
        assert app.invoke("slow.quick", run_id="down", id=4).output == 4
        app.close()
    finally:
        cluster.destroy()
