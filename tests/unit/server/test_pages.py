"""The pages of documentation name what there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc import status_pb2

from apiary import errors, telemetry
from apiary.errors import ApiaryError, FunctionError
from apiary.server.status import code_of, document_of, status_of

DOCS = Path(__file__).resolve().parents[3] / "docs"
HEADER_BYTES = 8 * 1024  # what gRPC clients take unless told otherwise


def _classes(above: type[ApiaryError] = ApiaryError) -> Iterator[type[ApiaryError]]:
    if above.__module__ == errors.__name__:
        yield above
        for below in above.__subclasses__():
            yield from _classes(below)


@pytest.mark.parametrize("error_class", list(_classes()), ids=lambda c: c.__name__)
def test_every_error_is_on_its_page(error_class: type[ApiaryError]) -> None:
    row = (
        f"| `{error_class.__name__}` | `{error_class.reason}` | `{error_class.grpc_code}` "
        f"| {error_class.exit_code} |"
    )
    assert row in (DOCS / "errors.md").read_text()


@pytest.mark.parametrize("names", [telemetry.Attribute, telemetry.Metric])
def test_every_name_of_telemetry_is_on_its_page(names: type) -> None:
    page = (DOCS / "telemetry.md").read_text()
    found = {value for name, value in vars(names).items() if name.isupper()}
    assert found
    assert [name for name in sorted(found) if f"`{name}`" not in page] == []


@pytest.mark.parametrize("error_class", list(_classes()), ids=lambda c: c.__name__)
def test_every_error_survives_its_status(error_class: type[ApiaryError]) -> None:
    error = error_class("what", hint="do", path="args.x", kind="run", name="r", number=3)
    status = status_pb2.Status.FromString(status_of(error).SerializeToString())
    assert status.code == grpc.StatusCode[error_class.grpc_code].value[0]
    rebuilt = ApiaryError.from_json(_document(status))
    assert type(rebuilt) is error_class
    assert rebuilt.to_json() == error.to_json()


def _document(status: status_pb2.Status) -> dict[str, object]:
    import json

    from apiary.proto.apiary.v1 import apiary_pb2

    for packed in status.details:
        detail = apiary_pb2.ErrorDetail()
        if packed.Unpack(detail):
            document: dict[str, object] = json.loads(detail.document)
            return document
    raise AssertionError("the status has no ErrorDetail")


@pytest.mark.parametrize("character", ["x", "é", "€", "\U0001f41d", '"', "\n"])
def test_a_status_fits_into_a_header(character: str) -> None:
    error = FunctionError(
        character * 20_000,
        hint=character * 5_000,
        type="ValueError",
        code=None,
        declared=False,
        details={"rows": [character * 10_000]},
        stack=character * 8_000,
        run_id="r",
    )
    status = status_of(error)
    assert len(status.SerializeToString()) * 4 / 3 + len(status.message.encode()) * 3 < HEADER_BYTES
    rebuilt = ApiaryError.from_json(_document(status))
    assert (rebuilt.type, rebuilt.declared, rebuilt.run_id) == ("ValueError", False, "r")
    assert {"message", "stack", "details"} <= set(rebuilt.omitted)


def test_a_short_error_is_sent_whole() -> None:
    error = FunctionError("no", type="Refused", code="REFUSED", details={"left": 3}, declared=True)
    assert code_of(error) is grpc.StatusCode.FAILED_PRECONDITION
    assert "omitted" not in document_of(error)
