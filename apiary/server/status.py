"""An error of the platform as a gRPC status with details.

Every status has an ErrorInfo and an `ErrorDetail` (the whole error, from which a client of Apiary
raises the same class again), and by kind a BadRequest, ResourceInfo, PreconditionFailure or
RetryInfo, so that clients in other languages need no knowledge of Apiary.

A status travels in a header field, and clients take 8 KiB of those unless told otherwise: what is
long (a stack, large details) is cut here, and is complete in the run's record.
"""

from __future__ import annotations

import json
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from ..errors import (
    ApiaryError,
    FunctionError,
    LeaseLost,
    NotFound,
    TransactionConflict,
    UnavailableError,
)
from ..proto.apiary.v1 import apiary_pb2

__all__ = ["DETAILS_KEY", "DOMAIN", "code_of", "document_of", "status_of"]

DOMAIN = "apiary"
DETAILS_KEY = "grpc-status-details-bin"

_MAX_DOCUMENT_BYTES = 2600
_MAX_MESSAGE_BYTES = 400
_MAX_STACK_BYTES = 800
_SHORT = 100  # characters of what is never cut: a type, a code, an id
_MAX_VALUE_BYTES = 200
_RETRY_DELAYS_S: dict[type[ApiaryError], float] = {
    UnavailableError: 1.0,
    TransactionConflict: 0.1,
    LeaseLost: 0.1,
}


def code_of(error: ApiaryError) -> grpc.StatusCode:
    """The gRPC code by which an error leaves."""
    if isinstance(error, FunctionError) and error.metadata.get("declared"):
        return grpc.StatusCode.FAILED_PRECONDITION
    return grpc.StatusCode[error.grpc_code]


def status_of(error: ApiaryError) -> status_pb2.Status:
    """The status of an error, with its details."""
    details = [_info(error), *_standard_details(error)]
    details.append(apiary_pb2.ErrorDetail(document=document_of(error)))
    return status_pb2.Status(
        code=code_of(error).value[0],
        message=_cut(error.message, _MAX_MESSAGE_BYTES),
        details=[_packed(detail) for detail in details],
    )


def document_of(error: ApiaryError) -> str:
    """The whole error as JSON text; what is too long for a header is cut, and named."""
    document = error.to_json()
    text = _json(document)
    if len(text.encode()) <= _MAX_DOCUMENT_BYTES:
        return text
    metadata: dict[str, Any] = dict(document.get("metadata", {}))
    texts: dict[str, Any] = {n: document[n] for n in ("message", "hint") if n in document}
    parts = {**metadata, **texts}
    sizes = {name: len(_json(part)) for name, part in parts.items()}
    omitted: list[str] = []
    # The longest first, until it fits.
    for name in sorted((n for n in parts if sizes[n] > _SHORT), key=sizes.__getitem__)[::-1]:
        omitted.append(name)
        if name in texts:
            document[name] = _cut(parts[name], _MAX_MESSAGE_BYTES)
        elif name == "stack":
            end = str(parts[name]).encode()[-_MAX_STACK_BYTES:]
            metadata[name] = "..." + end.decode(errors="ignore")
        else:
            del metadata[name]
        document["metadata"] = {**metadata, "omitted": omitted}
        text = _json(document)
        if len(text.encode()) <= _MAX_DOCUMENT_BYTES:
            break
    return text


def _info(error: ApiaryError) -> Message:
    metadata: dict[str, str] = {}
    for name, value in error.metadata.items():
        text = value if isinstance(value, str) else _json(value)
        if len(text.encode()) <= _MAX_VALUE_BYTES:
            metadata[name] = text
    info: Message = error_details_pb2.ErrorInfo(
        reason=error.reason, domain=DOMAIN, metadata=metadata
    )
    return info


def _standard_details(error: ApiaryError) -> list[Message]:
    found: list[Message] = []
    description = _cut(error.message, _MAX_VALUE_BYTES)
    path = error.metadata.get("path")
    if path is not None:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=str(path), description=description
        )
        found.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, NotFound):
        found.append(
            error_details_pb2.ResourceInfo(
                resource_type=str(error.metadata.get("kind", "")),
                resource_name=str(error.metadata.get("name", "")),
                description=description,
            )
        )
    elif code_of(error) is grpc.StatusCode.FAILED_PRECONDITION:
        failed = error_details_pb2.PreconditionFailure.Violation(
            type=str(error.metadata.get("type") or error.reason),
            subject=str(error.metadata.get("code") or ""),
            description=description,
        )
        found.append(error_details_pb2.PreconditionFailure(violations=[failed]))
    for error_class, delay_s in _RETRY_DELAYS_S.items():
        if isinstance(error, error_class):
            delay = Duration(seconds=int(delay_s), nanos=round(delay_s % 1 * 1e9))
            found.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return found


def _packed(detail: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _json(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _cut(text: str, limit_bytes: int) -> str:
    encoded = text.encode()
    if len(encoded) <= limit_bytes:
        return text
    return encoded[: limit_bytes - 3].decode(errors="ignore") + "..."
