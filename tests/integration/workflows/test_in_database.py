"""Workflows in the database: what they cost, what they promise, and when they leave it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from apiary.engine.postgres import IN_DATABASE
from apiary.errors import ApiaryError, IdempotencyMismatch, UnavailableError
from apiary.execution.starting import RunOptions
from apiary.local import PrivateCluster
from apiary.testing import TestServer
from tests.integration.workflows.conftest import Lab
from tests.integration.workflows.proxy import Proxy

SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("writes", {"n": 4}),
    ("reads", {"k": 1}),
    ("mixed", {"k": 2}),
    ("catches", {"k": 3}),
    ("fails", {"k": 4}),
    ("times_out", {"k": 5}),
    ("branches", {"n": 5}),
    ("values", {"k": 1}),
    ("timed", {"k": 6}),
    ("levels", {"k": 8}),
    ("bad_argument", {"k": 1}),
    ("raises", {"k": 9}),
    ("bad_result", {"k": 10}),
    ("nothing", {}),
]


@pytest.mark.parametrize(("workflow", "document"), SHAPES, ids=[shape[0] for shape in SHAPES])
def test_a_workflow_gives_the_same_in_the_database_and_in_an_executor(
    pair: tuple[Lab, Lab], workflow: str, document: dict[str, Any]
) -> None:
    inside, outside = pair
    run_id = f"same-{workflow}"
    options = {"run_id": run_id, "executor_only": False}
    assert inside.start_with(workflow, options, **document).status in ("SUCCEEDED", "FAILED")
    outside.start_with(workflow, {"run_id": run_id}, **document)
    outside.wait(run_id)
    assert _outcome(inside, run_id) == _outcome(outside, run_id)
    assert _operations(inside, run_id) == _operations(outside, run_id)


def _outcome(lab: Lab, run_id: str) -> tuple[Any, ...]:
    row = lab.row(run_id)
    error = row["error"] and {key: row["error"][key] for key in ("type", "message", "details")}
    return row["status"], row["output"], error, row["calls"]


def _operations(lab: Lab, run_id: str) -> list[tuple[Any, ...]]:
    rows = lab.query(
        "SELECT seq, kind, name, status, input::jsonb::text AS input, input_digest, read_only,"
        " isolation,"
        " CASE WHEN kind <> 'now' THEN output::jsonb::text END AS output, error ->> 'type' AS error"
        " FROM apiary.operation WHERE run_id = %s AND seq > 0 ORDER BY seq",
        run_id,
    )
    return [tuple(row.values()) for row in rows]


@pytest.fixture(scope="module")
def pair(apiary_server: TestServer, workflow_bundle: Any) -> Iterator[tuple[Lab, Lab]]:
    """Two databases: in one workflows run inside, in the other in an executor."""
    names = [apiary_server.create_database(workflow_bundle) for _ in range(2)]
    labs = [Lab(apiary_server.url(name)) for name in names]
    labs[1].executor()
    yield labs[0], labs[1]
    for lab, name in zip(labs, names, strict=True):
        lab.close()
        apiary_server.drop_database(name)


def test_a_workflow_of_functions_is_one_round_trip(lab: Lab) -> None:
    requests = [
        lab.ask(lab.starter.prepare("kvapp", "w.writes", {"n": n}, "test", RunOptions()))
        for n in (1, 1, 8)
    ]
    with Proxy(lab.url) as proxy:
        direct = Lab(proxy.url, pool_size=1)
        try:
            counts = []
            for request in requests:
                before = proxy.round_trips
                assert direct.ask(direct.starter.start(request)).status == "SUCCEEDED"
                counts.append(proxy.round_trips - before)
        finally:
            direct.close()
    assert counts[1:] == [1, 1]  # the first one opened the connection, and prepared


def test_a_workflow_of_functions_waits_for_the_disk_once(
    tmp_path_factory: pytest.TempPathFactory, workflow_bundle: Any
) -> None:
    folder = tmp_path_factory.getbasetemp()
    folder.parent.chmod(0o755)
    folder.chmod(0o755)
    # The WAL writer flushes after a time, and after so much: not because pages are logged whole.
    lazy = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "autovacuum": "off"}
    cluster = PrivateCluster(folder / "durable", settings=lazy)
    cluster.start()
    try:
        url = cluster.url(TestServer(cluster.url()).create_database(workflow_bundle))
        lab = Lab(url, pool_size=1)
        for _ in range(2):  # a session that has just reported tells nothing for ten seconds
            lab.run_inside("writes", n=1)
            _synced(lab)
        flushes = []
        for n in (2, 40):
            begun = _synced(lab)
            lab.run_inside("writes", n=n)
            flushes.append(_synced(lab) - begun)
        lab.close()
    finally:
        cluster.destroy()
    # The last commit waits; the WAL writer may have been at it once by itself.
    assert flushes[0] >= 1
    assert flushes[1] <= 2


def _synced(lab: Lab) -> int:
    """How often the log was synchronised so far; sessions report when they are idle."""
    seen = -1
    while seen != (now := lab.query("SELECT wal_sync FROM pg_stat_wal")[0]["wal_sync"]):
        seen = now
        lab.query("SELECT pg_sleep(1.1)")  # the interval in which sessions report at most once
    return int(seen)


@pytest.mark.parametrize("count", [1, 6])
def test_an_executor_needs_two_commits_more_than_functions(lab: Lab, count: int) -> None:
    lab.query("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
    lab.query("INSERT INTO kv.kv VALUES (1, 0)")
    lab.executor()
    lab.output(lab.start("writes", n=1))  # everything is loaded, and registered
    # The log is the whole server's: what autovacuum commits meanwhile can only add.
    fewest = min(_commits(lab, count) for _ in range(3))
    start = 1  # by the client
    assert fewest <= start + count + 2


def _commits(lab: Lab, count: int) -> int:
    """How many commits with changes there are while a run makes so many writing calls."""
    begun = lab.query("SELECT pg_current_wal_insert_lsn() AS lsn")[0]["lsn"]
    lab.output(lab.start("writes", n=count))
    (found,) = lab.query(
        "SELECT count(*) AS commits FROM pg_get_wal_records_info_till_end_of_wal(%s)"
        " WHERE resource_manager = 'Transaction' AND record_type LIKE 'COMMIT%%'",
        begun,
    )
    return int(found["commits"])


def test_a_run_that_only_reads_records_nothing(lab: Lab) -> None:
    outcome = lab.run_inside("reads", k=1)
    assert outcome.output == [None, None]
    assert lab.operations(outcome.run_id) == []
    assert lab.row(outcome.run_id)["calls"] == 2


def test_the_share_of_recorded_calls_can_be_asked_for(lab: Lab) -> None:
    inside = {"executor_only": False}
    lab.start_with("reads", inside, k=1)
    lab.start_with("writes", inside, n=4)
    rows = lab.query(
        "SELECT workflow, runs, calls, recorded, recorded_share, mean_run_ms, mean_inside_ms"
        " FROM provenance.workflow_overhead ORDER BY workflow"
    )
    shares = {row["workflow"].partition(".")[2]: float(row["recorded_share"]) for row in rows}
    assert shares == {"reads": 0.0, "writes": 1.0}
    assert all(row["runs"] == 1 and row["mean_run_ms"] >= row["mean_inside_ms"] for row in rows)


def test_a_read_is_recorded_when_a_write_depends_on_it(lab: Lab) -> None:
    outcome = lab.run_inside("mixed", k=1)
    assert outcome.output == [None, 1, 1, 2, 2]
    recorded = lab.operations(outcome.run_id)
    assert [(op[0], op[2]) for op in recorded] == [
        (1, "kv.get"), (2, "kv.incr"), (3, "kv.get"), (4, "kv.incr"),
    ]  # fmt: skip
    assert len(lab.row(outcome.run_id)["unrecorded"]) == 1


def test_a_read_is_recorded_before_a_step_begins(lab: Lab) -> None:
    lab.executor()
    run_id = lab.start("read_then_step", k=1)
    assert lab.output(run_id) == [None, 2, None]
    assert [op[2] for op in lab.operations(run_id)] == ["kv.get", "w.double"]


def test_a_read_is_recorded_before_either_of_two_started_functions_commits(lab: Lab) -> None:
    lab.executor()
    run_id = lab.start("read_then_two", k=1)
    assert lab.output(run_id) == [None, "a", "b"]
    rows = lab.query(
        "SELECT seq, xid::text::bigint AS xid FROM apiary.operation WHERE run_id = %s AND seq > 0"
        " ORDER BY seq",
        run_id,
    )
    assert [row["seq"] for row in rows] == [1, 2, 3]
    assert rows[0]["xid"] < min(rows[1]["xid"], rows[2]["xid"])


def test_conflicts_are_tried_again_in_place(lab: Lab) -> None:
    outcomes: list[Any] = []

    def run() -> None:
        outcomes.append(lab.run_inside("conflicting", times=5))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.status for outcome in outcomes] == ["SUCCEEDED", "SUCCEEDED"]
    assert lab.value(-1) == 10
    retried = lab.query("SELECT status, error ->> 'type' AS type FROM apiary.attempt")
    assert {(row["status"], row["type"]) for row in retried} == {("RETRIED", "TransactionConflict")}
    assert {row["epoch"] for row in lab.query("SELECT epoch FROM apiary.run")} == {1}


@pytest.mark.parametrize("workflow", ["hidden_step", "swallows_leaving"])
def test_a_run_that_reaches_a_step_goes_on_in_an_executor(lab: Lab, workflow: str) -> None:
    request = {"run_id": "left", "executor_only": False}
    lab.query("UPDATE apiary.workflow SET in_database = true WHERE name = %s", f"w.{workflow}")
    outcome = lab.start_with(workflow, request, n=1)
    assert outcome.status == "QUEUED"
    assert lab.row("left")["in_database"] is False
    assert [op[:3] for op in lab.operations("left")] == [(1, "function", "kv.incr")]
    lab.executor()
    assert lab.output("left") == [1, 2, 2]
    assert lab.value(1) == 2


def test_functions_have_the_applications_role_and_everything_else_the_logins(lab: Lab) -> None:
    lab.query("CREATE ROLE runner LOGIN PASSWORD 'secret' IN ROLE apiary_runtime")
    login = psycopg.conninfo.make_conninfo(lab.url, user="runner", password="secret")
    with closing(Lab(login, pool_size=1)) as limited:
        outcome = limited.run_inside("asks_who", k=1)
        assert outcome.output == [["apiary_app_kvapp", "runner"]] * 2
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            limited.query("DELETE FROM apiary.operation")
        assert _in_pool(limited, "SELECT current_user::text") == ("runner",)
    lab.query("DROP ROLE runner")


def test_code_that_catches_everything_for_ever_ends_with_its_backend(lab: Lab) -> None:
    lab.query("UPDATE apiary.workflow SET in_database = true WHERE name = 'w.insists'")
    with pytest.raises(UnavailableError, match="the code of run stubborn does not end"):
        lab.start_with("insists", {"run_id": "stubborn", "executor_only": False}, n=1)
    assert lab.status("stubborn") == "QUEUED"
    lab.executor()
    assert lab.output("stubborn") == [1, 2]
    assert lab.value(1) == 1


@pytest.mark.parametrize(
    ("workflow", "document", "effects"),
    [("loops", {"k": 1}, ["loops"]), ("naps", {"seconds": 60.0}, ["before"])],
)
def test_a_cancelled_run_is_interrupted_in_its_backend(
    lab: Lab, workflow: str, document: dict[str, Any], effects: list[str]
) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            lab.start_with(workflow, {"run_id": "c", "executor_only": False}, **document)
        except ApiaryError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    lab.until(lambda: lab.effects() == effects)
    assert lab.ask(lab.store.cancel("c", "enough", cascade=True)) == ["c"]
    thread.join(timeout=5.0)
    assert not thread.is_alive()
    assert [type(error).__name__ for error in raised] == ["Cancelled"]
    assert lab.status("c") == "CANCELLED"
    assert lab.effects() == effects  # what had committed; the rest was rolled back
    assert "enough" in lab.row("c")["error"]["message"]


def test_a_run_past_its_deadline_is_interrupted_in_its_backend(lab: Lab) -> None:
    lab.executor()
    with pytest.raises(ApiaryError):
        lab.start_with("loops", {"run_id": "d", "executor_only": False, "timeout_s": 0.5}, k=1)
    assert lab.wait("d")["status"] == "TIMED_OUT"


@pytest.mark.parametrize(
    ("workflow", "document"),
    [("writes", {"n": 2}), ("levels", {"k": 1}), ("fails", {"k": 1}), ("times_out", {"k": 1})],
)
def test_the_sessions_settings_are_put_back(
    lab: Lab, workflow: str, document: dict[str, Any]
) -> None:
    lab.run_inside(workflow, **document)
    assert _settings(lab) == ("read committed", "on")


def test_the_sessions_settings_are_put_back_after_a_refusal(lab: Lab) -> None:
    lab.start_with("writes", {"run_id": "taken", "executor_only": False}, n=1)
    with pytest.raises(IdempotencyMismatch):
        lab.start_with("writes", {"run_id": "taken", "executor_only": False}, n=2)
    with psycopg.connect(lab.url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = 'local'")
        request = '{"run_id": "nobody", "epoch": 1}'
        answer = connection.execute(
            "CALL apiary.run_in_database(%s::json, NULL)", [request]
        ).fetchone()
        assert answer is not None
        assert '"refused": {"error": "LeaseLost"' in answer[0]
        for name, value in (
            ("default_transaction_isolation", "read committed"), ("synchronous_commit", "local"),
        ):  # fmt: skip
            assert connection.execute(f"SHOW {name}".encode()).fetchone() == (value,)
    assert _settings(lab) == ("read committed", "on")


def _settings(lab: Lab) -> tuple[Any, ...]:
    return _in_pool(
        lab,
        "SELECT current_setting('default_transaction_isolation'),"
        " current_setting('synchronous_commit')",
    )


def _in_pool(lab: Lab, statement: str) -> tuple[Any, ...]:
    """A row, asked for in a session in which workflows run."""

    async def ask() -> tuple[Any, ...]:
        async with lab.engine.connection(IN_DATABASE) as connection:
            row = await (await connection.execute(statement.encode())).fetchone()
            assert row is not None
            return row

    found: tuple[Any, ...] = lab.ask(ask())
    return found


def test_starting_one_id_many_times_runs_it_once(lab: Lab) -> None:
    outcomes: list[Any] = []

    def run() -> None:
        options = {"run_id": "once", "executor_only": False}
        outcomes.append(lab.start_with("naps", options, seconds=0.3))

    threads = [threading.Thread(target=run) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(outcome.created for outcome in outcomes) == 1
    assert {outcome.status for outcome in outcomes} <= {"RUNNING", "SUCCEEDED"}
    assert lab.wait("once")["output"] == "naps"
    assert lab.effects() == ["before", "naps"]
