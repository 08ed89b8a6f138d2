"""Asking over gRPC: functions, runs, queries."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import grpc
import pytest
from sqlalchemy import Table
from sqlalchemy.dialects import postgresql

from apiary import Client
from apiary.authoring.bundle import Bundle
from apiary.errors import (
    BadArgument,
    DeadlineExceeded,
    FunctionError,
    NotFound,
    PermissionDenied,
    StatementError,
)
from apiary.proto.apiary.v1 import apiary_pb2, apiary_pb2_grpc
from apiary.provenance import tables
from apiary.testing import rows
from tests.integration.server.running import Servers


def test_functions_are_listed_and_described(odd: Client) -> None:
    names = [function.name for function in odd.functions()]
    assert names == sorted(names)
    assert "odd.put" in names
    assert [f.name for f in odd.functions("oddities")] == names
    described = odd.describe_function("odd.loop_with_timeout")
    assert (described.application, described.timeout_s) == ("oddities", 0.3)
    put = odd.describe_function("odd.put", "oddities")
    assert (put.read_only, put.writes, put.timeout_s) == (False, ("odd.item",), None)
    assert put.signature["parameters"][0]["name"] == "value"
    assert put.file == "functions/odd/__init__.py"


def test_what_is_not_there_is_not_found(odd: Client) -> None:
    for ask, kind in (
        (lambda: odd.describe_function("odd.putt"), "function"),
        (lambda: odd.describe_function("odd.put", "elsewhere"), "application"),
        (lambda: odd.functions("elsewhere"), "application"),
        (lambda: odd.get_run("nothing"), "run"),
    ):
        with pytest.raises(NotFound) as missing:
            ask()
        assert missing.value.kind == kind


def test_a_run_has_what_happened(odd: Client) -> None:
    result = odd.invoke("odd.put", value=4, run_id="one")
    run = odd.get_run("one")
    assert (run.kind, run.name, run.application, run.status) == (
        "function",
        "odd.put",
        "oddities",
        "SUCCEEDED",
    )
    assert (run.input, run.output, run.error) == ({"value": 4}, 4, None)
    assert (run.deployment, run.principal) == (result.deployment, "local")
    assert run.finished_at is not None
    assert run.started_at <= run.finished_at
    (operation,) = run.operations
    assert (operation.seq, operation.attempt, operation.xid) == (0, 1, result.xid)
    assert operation.log == "put 4\n"


def test_a_failed_run_has_its_error(odd: Client) -> None:
    with pytest.raises(FunctionError):
        odd.call("odd.refuse", left=2, run_id="no")
    run = odd.get_run("no")
    assert run.status == "FAILED"
    assert run.error is not None
    assert (run.error["type"], run.error["code"]) == ("Refused", "REFUSED")


def test_a_run_that_never_recorded_has_its_last_attempt(odd: Client) -> None:
    for _ in range(2):
        with pytest.raises(DeadlineExceeded):
            odd.call("odd.loop_with_timeout", run_id="late")
    run = odd.get_run("late")
    assert run.status == "TIMED_OUT"
    assert [operation.status for operation in run.operations] == ["TIMED_OUT"] * 2
    assert [r.run_id for r in odd.list_runs(run_id_prefix="late")] == ["late"]


def test_runs_are_paged_newest_first_and_filtered(odd: Client) -> None:
    for number in range(7):
        odd.call("odd.put", value=number, run_id=f"put-{number}")
    with pytest.raises(FunctionError):
        odd.call("odd.refuse", left=0, run_id="refused")
    newest_first = ["refused", *(f"put-{n}" for n in reversed(range(7)))]
    assert [run.run_id for run in odd.list_runs()] == newest_first
    for page_size in (1, 3, 8):
        assert [run.run_id for run in odd.list_runs(page_size=page_size)] == newest_first
    assert [run.run_id for run in odd.list_runs(statuses=["FAILED", "STUCK"])] == ["refused"]
    assert [run.run_id for run in odd.list_runs(name="odd.put", page_size=2)] == newest_first[1:]
    assert list(odd.list_runs(application="elsewhere")) == []
    third = odd.get_run("put-3").started_at
    assert [run.run_id for run in odd.list_runs(since=third)] == newest_first[:5]
    assert [run.run_id for run in odd.list_runs(until=third)] == newest_first[5:]


def test_a_workflows_run_is_a_run(odd: Client, odd_database: str) -> None:
    odd.call("odd.put", value=1, run_id="function")
    rows(
        odd_database,
        "SELECT apiary.start_run('workflow', f.application, f.deployment, 'odd.flow', false,"
        " '{\"n\": 1}', 'digest', 'ada', NULL, NULL, 0, NULL, NULL, NULL, NULL, 50, NULL, NULL,"
        " NULL, NULL, NULL) FROM apiary.operation f",
    )
    run = odd.get_run("workflow")
    assert (run.kind, run.name, run.status) == ("workflow", "odd.flow", "QUEUED")
    assert (run.input, run.operations, run.finished_at) == ({"n": 1}, (), None)
    assert [r.run_id for r in odd.list_runs()] == ["workflow", "function"]
    assert [r.run_id for r in odd.list_runs(statuses=["QUEUED"])] == ["workflow"]


def test_new_runs_do_not_disturb_the_pages(odd: Client) -> None:
    for number in range(4):
        odd.call("odd.put", value=number, run_id=f"put-{number}")
    listing = odd.list_runs(page_size=2)
    seen = [next(listing).run_id, next(listing).run_id]
    odd.call("odd.put", value=9, run_id="new")
    seen += [run.run_id for run in listing]
    assert seen == ["put-3", "put-2", "put-1", "put-0"]


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (apiary_pb2.ListRunsRequest(statuses=["DONE"]), "statuses"),
        (apiary_pb2.ListRunsRequest(page_size=1001), "page_size"),
        (apiary_pb2.ListRunsRequest(page_size=-1), "page_size"),
        (apiary_pb2.ListRunsRequest(page_token="x"), "page_token"),
        (apiary_pb2.ListRunsRequest(page_token="bnVsbA=="), "page_token"),
        (apiary_pb2.ListRunsRequest(name="\0"), "name"),
    ],
)
def test_a_wrong_filter_is_refused(
    odd: Client, request_: apiary_pb2.ListRunsRequest, path: str
) -> None:
    with grpc.insecure_channel(odd.address) as channel, pytest.raises(grpc.RpcError) as refused:
        apiary_pb2_grpc.ApiaryStub(channel).ListRuns(request_)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert path in (refused.value.details() or "")


def test_deploy_and_rollback_over_grpc(odd: Client, apiary_bundle: Bundle) -> None:
    checked = odd.deploy(apiary_bundle, check_only=True)
    assert checked.changed
    assert {f.application for f in odd.functions()} == {"oddities"}
    deployed = odd.deploy(apiary_bundle)
    assert (deployed.changed, deployed.previous) == (True, None)
    assert "hotel.reserve" in deployed.functions
    assert not odd.deploy(apiary_bundle).changed
    assert odd.call("hotel.reserve", hotel_id=1, customer_id=1) == 1
    with pytest.raises(NotFound, match="no deployment before"):
        odd.rollback("apiary")
    with pytest.raises(NotFound, match="no application"):
        odd.rollback("elsewhere")


def test_a_server_without_a_deploying_role_says_what_to_do(
    odd_servers: Servers, apiary_bundle: Bundle
) -> None:
    with Client(odd_servers.start(deploy_url=None).address) as client:
        with pytest.raises(PermissionDenied, match="no database role that may deploy") as refused:
            client.deploy(apiary_bundle)
        assert "apiary deploy --database-url" in (refused.value.hint or "")


def test_a_bundle_that_is_none_is_refused(odd: Client) -> None:
    for text in ("{", "{}", "[]", '{"modules": [{}]}'):
        with grpc.insecure_channel(odd.address) as channel, pytest.raises(grpc.RpcError) as bad:
            apiary_pb2_grpc.ApiaryStub(channel).Deploy(apiary_pb2.DeployRequest(bundle=text))
        assert bad.value.code() is grpc.StatusCode.INVALID_ARGUMENT


# Queries


@pytest.mark.parametrize(
    ("expression", "type_", "value"),
    [
        ("1", "integer", 1),
        ("9223372036854775807", "bigint", 2**63 - 1),
        ("1.5::float8", "double precision", 1.5),
        ("'infinity'::float8", "double precision", float("inf")),
        ("1.10::numeric", "numeric", Decimal("1.10")),
        ("true", "boolean", True),
        ("'é \"x\"'::text", "text", 'é "x"'),
        ("NULL::text", "text", None),
        ("'\\x00ff'::bytea", "bytea", b"\x00\xff"),
        ("date '2026-07-01'", "date", dt.date(2026, 7, 1)),
        ("'infinity'::date", "date", "infinity"),
        (
            "timestamptz '2026-07-01 12:00:00.000001+02'",
            "timestamp with time zone",
            dt.datetime(2026, 7, 1, 10, 0, 0, 1, tzinfo=dt.UTC),
        ),
        ("interval '90 minutes'", "interval", dt.timedelta(minutes=90)),
        ("interval '1 month'", "interval", "1 mon"),
        (
            "'0190163d-8694-739b-aea5-966c26f8ad91'::uuid",
            "uuid",
            UUID("0190163d-8694-739b-aea5-966c26f8ad91"),
        ),
        ("'{\"$a\": [1, null]}'::jsonb", "jsonb", {"$a": [1, None]}),
        ("ARRAY[1.5, NULL]::numeric[]", "numeric[]", [Decimal("1.5"), None]),
        ("'10.0.0.1'::inet", "inet", "10.0.0.1"),
        ("'[1,5)'::int4range", "int4range", "[1,5)"),
        ("'1'::xid8", "xid8", "1"),
        ("'odd.item'::regclass", "regclass", "odd.item"),
    ],
)
def test_values_of_a_query(shared_odd: Client, expression: str, type_: str, value: Any) -> None:
    result = shared_odd.query(f"SELECT {expression} AS it")
    assert [(column.name, column.type) for column in result.columns] == [("it", type_)]
    assert list(result) == [(value,)]


def test_a_query_streams_many_rows(odd: Client) -> None:
    result = odd.query("SELECT n, repeat('x', 100) FROM generate_series(1, 20000) AS n")
    assert [row[0] for row in result] == list(range(1, 20001))


def test_a_query_without_rows_has_columns(odd: Client) -> None:
    result = odd.query("-- nothing\n SELECT run_id, xid FROM provenance.invocation WHERE false;")
    assert [column.name for column in result.columns] == ["run_id", "xid"]
    assert list(result) == []


def test_a_query_that_is_closed_ends_in_the_database(
    odd: Client, odd_database: str, eventually: Any
) -> None:
    result = odd.query("SELECT generate_series(1, 100000000), repeat('x', 1000)")
    assert next(iter(result))[0] == 1
    result.close()
    eventually(lambda: _queries(odd_database) == [])


def test_a_query_is_bounded_in_time(odd: Client, odd_database: str) -> None:
    with pytest.raises(DeadlineExceeded):
        list(odd.query("SELECT pg_sleep(60)", timeout_s=0.3))
    with pytest.raises(DeadlineExceeded):
        # Each fetch is short: it is the whole that takes too long.
        for _ in odd.query("SELECT pg_sleep(0.0001) FROM generate_series(1, 1000000)", 0.5):
            pass
    assert _queries(odd_database) == []


def _queries(url: str) -> list[dict[str, Any]]:
    return rows(
        url,
        "SELECT query FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'apiary query'",
    )


@pytest.mark.parametrize(
    ("sql", "error_class", "says"),
    [
        ("", BadArgument, "no SQL"),
        ("-- only a remark", BadArgument, "no SQL"),
        ("SELECT 1; SELECT 2", BadArgument, "2 statements"),
        ("SELEC 1", BadArgument, "starts with SELEC"),
        ("SHOW work_mem", BadArgument, "starts with SHOW"),
        ("SELECT 'a", BadArgument, "cannot be read"),
        ("SELECT 1 FROM nowhere", BadArgument, "nowhere"),
        ("SELECT nothing", BadArgument, "nothing"),
        ("SELECT 1 +", BadArgument, "syntax error"),
        ("SELECT 1\0", BadArgument, "U+0000"),
        ("INSERT INTO odd.item (value) VALUES (1)", PermissionDenied, "INSERT"),
        ("DELETE FROM provenance.write_event", PermissionDenied, "DELETE"),
        ("CREATE TABLE t (a int)", PermissionDenied, "CREATE"),
        ("SET ROLE postgres", PermissionDenied, "SET"),
        ("COMMIT", PermissionDenied, "COMMIT"),
        ("WITH x AS (DELETE FROM odd.item RETURNING 1) SELECT * FROM x", BadArgument, "WITH"),
        ("SELECT 1 INTO t", BadArgument, "INTO"),
        ("SELECT * FROM pg_authid", PermissionDenied, "pg_authid"),
        ("SELECT * FROM odd.item FOR UPDATE", PermissionDenied, ""),
        (
            "SELECT apiary.invoke('x', 0, 'oddities', NULL, 'odd.put', '{\"value\": 1}', 'me',"
            " NULL, 1, true, NULL, NULL)",
            PermissionDenied,
            "invoke",
        ),
        ("SELECT set_config('transaction_read_only', 'off', true)", StatementError, ""),
        ("SELECT 1 / (value - 1) FROM odd.item", StatementError, "division by zero"),
    ],
)
def test_what_is_no_reading_statement_is_refused(
    shared_odd: Client, sql: str, error_class: type[Exception], says: str
) -> None:
    shared_odd.call("odd.put", value=1, run_id="one row")
    before = list(shared_odd.query("SELECT * FROM odd.item"))
    with pytest.raises(error_class) as refused:
        list(shared_odd.query(sql))
    assert says.lower() in str(refused.value).lower()
    assert list(shared_odd.query("SELECT * FROM odd.item")) == before
    assert [column.name for column in shared_odd.query("SELECT 1 AS fine").columns] == ["fine"]


# Tables


@pytest.mark.parametrize("table", tables.metadata.sorted_tables, ids=str)
def test_the_tables_are_those_of_the_catalogue(shared_odd: Client, table: Table) -> None:
    real = shared_odd.query(
        "SELECT attname::text, format_type(atttypid, atttypmod), NOT attnotnull"
        f"  FROM pg_attribute WHERE attrelid = '{table}'::regclass"
        "   AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )
    assert [_column(column) for column in table.columns] == list(real)


def _column(column: Any) -> tuple[str, str, bool]:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return column.name, str(column.type.compile(dialect)).lower(), column.nullable
