"""Invoking functions over gRPC: results, ids, and what each kind of bad input comes to."""

from __future__ import annotations

import asyncio
import datetime as dt
from decimal import Decimal
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from apiary import AsyncClient, Client
from apiary.errors import (
    BadArgument,
    BadResult,
    DeadlineExceeded,
    FunctionError,
    IdempotencyMismatch,
    NotFound,
    PayloadTooLarge,
    UnavailableError,
)
from apiary.proto.apiary.v1 import apiary_pb2, apiary_pb2_grpc
from apiary.testing import rows
from functions import hotel
from tests.integration.server.running import Servers


def test_a_function_is_called_by_itself_and_by_name(client: Client) -> None:
    client.call(hotel.add_hotel, 1, "Ritz", rooms=1, longitude=2.3, latitude=48.9)
    hits = client.call(hotel.search, longitude=2.3, latitude=48.9)
    assert hits == [hotel.Hit(1, "Ritz", 0.0, 1)]
    assert client.call(hotel.reserve, hotel_id=1, customer_id=7) == hotel.RESERVED
    assert client.call("hotel.reserve", hotel_id=1, customer_id=8) == hotel.SOLD_OUT


def test_values_called_by_name_keep_their_types(odd: Client) -> None:
    value = {"day": dt.date(2026, 7, 1), "price": Decimal("1.10"), "raw": b"\x00\xff", "$x": (1, 2)}
    assert odd.call("odd.echo", value=value) == value
    assert odd.call("odd.later", day=dt.date(2026, 7, 1), price=Decimal("1.10")) == [
        "2026-07-02",
        "2.20",
    ]


def test_a_document_is_sent_and_returned_as_it_is(odd: Client) -> None:
    result = odd.invoke_document("odd.echo", {"value": {"$date": "2026-07-01"}})
    assert result.output == {"$date": "2026-07-01"}


def test_the_same_id_returns_the_record_without_running(odd: Client, odd_database: str) -> None:
    first = odd.invoke("odd.put", value=5, run_id="order-1")
    again = odd.invoke("odd.put", value=5, run_id="order-1")
    assert (first.output, first.replayed, first.run_id) == (5, False, "order-1")
    assert (again.output, again.replayed, again.xid) == (5, True, first.xid)
    assert rows(odd_database, "SELECT value FROM odd.item") == [{"value": 5}]


def test_an_id_is_refused_for_another_input_or_function(odd: Client, odd_database: str) -> None:
    odd.call("odd.put", value=5, run_id="order-1")
    with pytest.raises(IdempotencyMismatch) as other_input:
        odd.call("odd.put", value=6, run_id="order-1")
    assert other_input.value.recorded_digest != other_input.value.requested_digest
    with pytest.raises(IdempotencyMismatch, match=r"odd\.put, not oddities/odd\.echo"):
        odd.call("odd.echo", value=5, run_id="order-1")
    assert rows(odd_database, "SELECT value FROM odd.item") == [{"value": 5}]


def test_an_id_of_any_characters_travels(odd: Client) -> None:
    result = odd.invoke("odd.put", value=1, run_id="Bestellung Nr. 1 für Zoë")
    assert odd.get_run(result.run_id).run_id == "Bestellung Nr. 1 für Zoë"


@pytest.mark.parametrize("run_id", ["", "x" * 256, "a\nb"])
def test_an_id_that_is_none_is_refused(odd: Client, run_id: str) -> None:
    with pytest.raises(BadArgument) as refused:
        odd.call("odd.put", value=1, run_id=run_id)
    assert refused.value.path == "run_id"


def test_a_declared_error_is_the_outcome(odd: Client, odd_database: str) -> None:
    with pytest.raises(FunctionError, match="only 3 left") as failed:
        odd.call("odd.refuse", left=3, run_id="r")
    error = failed.value
    assert (error.type, error.code, error.details) == ("Refused", "REFUSED", {"left": 3})
    assert error.declared
    assert error.run_id == "r"
    with pytest.raises(FunctionError, match="only 3 left"):
        odd.call("odd.refuse", left=3, run_id="r")
    assert rows(odd_database, "SELECT count(*) AS n FROM odd.item") == [{"n": 0}]
    assert rows(odd_database, "SELECT count(*) AS n FROM apiary.operation") == [{"n": 1}]


def test_an_error_that_is_too_long_for_a_header_still_arrives(odd: Client) -> None:
    with pytest.raises(FunctionError) as failed:
        odd.call("odd.fail", message="é" * 50_000, run_id="long")
    assert failed.value.type == "ValueError"
    assert failed.value.message.startswith("éé")
    assert "message" in failed.value.omitted
    recorded = odd.get_run("long").error
    assert recorded is not None
    assert len(recorded["message"]) > 10_000


@pytest.mark.parametrize(
    ("function", "document", "path"),
    [
        ("odd.put", {}, "args.value"),
        ("odd.put", {"value": "x"}, "args.value"),
        ("odd.put", {"value": 1, "valu": 2}, "args.valu"),
    ],
)
def test_wrong_arguments_name_the_argument(
    odd: Client, odd_database: str, function: str, document: dict[str, Any], path: str
) -> None:
    with pytest.raises(BadArgument) as refused:
        odd.invoke_document(function, document)
    assert refused.value.path == path
    assert rows(odd_database, "SELECT count(*) AS n FROM provenance.invocation") == [{"n": 0}]


def test_positional_arguments_of_a_name_are_refused(odd: Client) -> None:
    with pytest.raises(BadArgument, match="given by name"):
        odd.call("odd.put", 1)


def test_an_unknown_function_is_not_found(odd: Client) -> None:
    with pytest.raises(NotFound) as unknown:
        odd.call("odd.putt", value=1)
    assert (unknown.value.kind, unknown.value.name) == ("function", "odd.putt")
    assert unknown.value.hint == "did you mean odd.put?"
    with pytest.raises(NotFound, match=r"nowhere\.put"):
        odd.call("nowhere.put", value=1)
    with pytest.raises(NotFound, match=r"no application|no deployment"):
        odd.call("odd.put", value=1, application="elsewhere")


def test_a_result_that_cannot_be_stored_is_the_functions_error(odd: Client) -> None:
    with pytest.raises(BadResult) as bad:
        odd.call("odd.bad_result")
    assert bad.value.path == "result"


def test_large_arguments_are_refused_before_anything_runs(odd: Client, odd_database: str) -> None:
    with pytest.raises(PayloadTooLarge) as large:
        odd.call("odd.echo", value="x" * (4 * 1024 * 1024))
    assert large.value.limit_bytes == 4 * 1024 * 1024
    with pytest.raises(PayloadTooLarge):
        odd.call("odd.echo", value="x" * (17 * 1024 * 1024))
    assert rows(odd_database, "SELECT count(*) AS n FROM provenance.invocation") == [{"n": 0}]
    assert odd.call("odd.echo", value="x" * 3_000_000) == "x" * 3_000_000


def test_a_large_result_is_the_functions_error(odd: Client) -> None:
    with pytest.raises(PayloadTooLarge) as large:
        odd.call("odd.big_result", size=5_000_000)
    assert large.value.path == "result"


def test_a_body_that_loops_ends_with_its_functions_timeout(odd: Client, odd_database: str) -> None:
    with pytest.raises(DeadlineExceeded):
        odd.call("odd.loop_with_timeout", run_id="loop")
    assert odd.get_run("loop").status == "TIMED_OUT"
    assert _running(odd_database) == []


def test_a_body_that_loops_ends_with_the_calls_timeout(odd: Client, odd_database: str) -> None:
    with pytest.raises(DeadlineExceeded) as late:
        odd.call("odd.loop", timeout_s=0.3, run_id="loop")
    assert late.value.run_id == "loop"
    assert odd.get_run("loop").status == "TIMED_OUT"
    assert _running(odd_database) == []


def test_a_clients_deadline_cancels_the_statement(
    odd: Client, odd_database: str, eventually: Any
) -> None:
    with grpc.insecure_channel(odd.address) as channel:
        stub = apiary_pb2_grpc.ApiaryStub(channel)
        request = apiary_pb2.InvokeRequest(
            function="odd.sleep", input='{"duration_s": 60}', run_id="late"
        )
        with pytest.raises(grpc.RpcError) as late:
            stub.Invoke(request, timeout=0.4)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    eventually(lambda: _running(odd_database) == [])
    assert rows(odd_database, "SELECT count(*) AS n FROM odd.item") == [{"n": 0}]


def test_a_client_that_goes_away_cancels_the_statement(
    odd: Client, odd_database: str, eventually: Any
) -> None:
    with grpc.insecure_channel(odd.address) as channel:
        stub = apiary_pb2_grpc.ApiaryStub(channel)
        request = apiary_pb2.InvokeRequest(
            function="odd.sleep", input='{"duration_s": 60}', run_id="gone"
        )
        future = stub.Invoke.future(request)
        eventually(lambda: len(_running(odd_database)) == 1)
        future.cancel()
    eventually(lambda: _running(odd_database) == [])
    eventually(lambda: odd.get_run("gone").status == "CANCELLED", (NotFound,))
    assert rows(odd_database, "SELECT count(*) AS n FROM odd.item") == [{"n": 0}]


def _running(url: str) -> list[dict[str, Any]]:
    return rows(
        url,
        "SELECT query FROM pg_stat_activity WHERE datname = current_database()"
        " AND state <> 'idle' AND query LIKE 'SELECT apiary.invoke%%'",
    )


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (apiary_pb2.InvokeRequest(), "function"),
        (apiary_pb2.InvokeRequest(function="a\0b"), "function"),
        (apiary_pb2.InvokeRequest(function="odd.put", application="a\0b"), "application"),
        (apiary_pb2.InvokeRequest(function="odd.put", input="{"), "input"),
        (apiary_pb2.InvokeRequest(function="odd.put", input='{"value": NaN}'), "input"),
        (apiary_pb2.InvokeRequest(function="odd.put", input="[1]"), "args"),
        (apiary_pb2.InvokeRequest(function="odd.echo", input='{"value": "\\ud800"}'), "args.value"),
        (
            apiary_pb2.InvokeRequest(function="odd.put", input='{"value": 1}', timeout={}),
            "timeout",
        ),
    ],
)
def test_a_bad_request_names_the_field(
    odd: Client, request_: apiary_pb2.InvokeRequest, path: str
) -> None:
    with grpc.insecure_channel(odd.address) as channel, pytest.raises(grpc.RpcError) as refused:
        apiary_pb2_grpc.ApiaryStub(channel).Invoke(request_)
    details = _details(refused.value)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details["ErrorInfo"].reason == "BAD_ARGUMENT"
    assert details["ErrorInfo"].domain == "apiary"
    assert [v.field for v in details["BadRequest"].field_violations] == [path]


def test_every_failure_has_details_for_clients_in_any_language(odd: Client) -> None:
    with grpc.insecure_channel(odd.address) as channel:
        stub = apiary_pb2_grpc.ApiaryStub(channel)
        with pytest.raises(grpc.RpcError) as declared:
            stub.Invoke(apiary_pb2.InvokeRequest(function="odd.refuse", input='{"left": 1}'))
        with pytest.raises(grpc.RpcError) as undeclared:
            stub.Invoke(apiary_pb2.InvokeRequest(function="odd.fail", input='{"message": "no"}'))
        with pytest.raises(grpc.RpcError) as unknown:
            stub.Invoke(apiary_pb2.InvokeRequest(function="odd.putt"))
    assert declared.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    info = _details(declared.value)["ErrorInfo"]
    assert (info.reason, info.metadata["type"], info.metadata["code"]) == (
        "USER_ERROR",
        "Refused",
        "REFUSED",
    )
    assert _details(declared.value)["PreconditionFailure"].violations[0].type == "Refused"
    assert undeclared.value.code() is grpc.StatusCode.UNKNOWN
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
    assert _details(unknown.value)["ResourceInfo"].resource_name == "odd.putt"
    for failed in (declared, undeclared, unknown):
        assert "apiary-run-id" in dict(failed.value.trailing_metadata())


def _details(error: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    status = status_pb2.Status.FromString(
        dict(error.trailing_metadata())["grpc-status-details-bin"]
    )
    for packed in status.details:
        name = packed.TypeName()
        if name.startswith("google.rpc."):
            detail = getattr(error_details_pb2, name.rpartition(".")[2])()
            packed.Unpack(detail)
            found[name.rpartition(".")[2]] = detail
    return found


def test_the_async_client_does_the_same(odd_servers: Servers) -> None:
    address = odd_servers.start().address

    async def work() -> None:
        async with AsyncClient(address) as client:
            results = await asyncio.gather(*(client.call("odd.put", value=n) for n in range(8)))
            assert results == list(range(8))
            with pytest.raises(FunctionError, match="only 1 left"):
                await client.call("odd.refuse", left=1)
            with pytest.raises(NotFound):
                await client.call("odd.putt")
            assert [run.name async for run in client.list_runs(statuses=["FAILED"])] == [
                "odd.refuse"
            ]
            result = await client.query("SELECT value FROM odd.item ORDER BY value")
            assert [row async for row in result] == [(n,) for n in range(8)]

    asyncio.run(work())


def test_no_server_there_is_said() -> None:
    with (
        Client("127.0.0.1:1", retry_budget_s=0.1) as nobody,
        pytest.raises(UnavailableError, match=r"no server answers at 127\.0\.0\.1:1") as failed,
    ):
        nobody.call("odd.put", value=1)
    assert failed.value.exit_code == 69
    assert failed.value.run_id
