"""A failed call as the platform's error, and whether and when to try it again."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import grpc
from google.rpc import status_pb2

from ..errors import (
    ApiaryError,
    BadArgument,
    Cancelled,
    ConflictError,
    DeadlineExceeded,
    NotFound,
    PayloadTooLarge,
    PermissionDenied,
    TransactionConflict,
    Unauthenticated,
    UnavailableError,
    UsageError,
)
from ..proto.apiary.v1 import apiary_pb2
from .requests import Request

__all__ = ["Attempts", "failure_of"]

_DETAILS_KEY = "grpc-status-details-bin"
# For answers that do not come from a server of Apiary: a proxy's, or gRPC's own.
_BY_CODE: dict[grpc.StatusCode, type[ApiaryError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: BadArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: ConflictError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.RESOURCE_EXHAUSTED: PayloadTooLarge,
    grpc.StatusCode.ABORTED: TransactionConflict,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.UNIMPLEMENTED: UsageError,
}
_FIRST_DELAY_S = 0.05
_MAX_DELAY_S = 1.0
# The server's own timeout answers with details; the line is cut only when that does not come.
_SLACK_S = 2.0


def failure_of(error: Any, address: str, request: Request[Any]) -> ApiaryError:
    """The error that a failed call (grpc.RpcError of either client) stands for."""
    found = _detailed(error) or _plain(error, address)
    if request.run_id is not None:
        found.metadata.setdefault("run_id", request.run_id)
    return found


def _detailed(error: Any) -> ApiaryError | None:
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY:
            for packed in status_pb2.Status.FromString(value).details:
                detail = apiary_pb2.ErrorDetail()
                if packed.Unpack(detail):
                    return ApiaryError.from_json(json.loads(detail.document))
    return None


def _plain(error: Any, address: str) -> ApiaryError:
    code, details = error.code(), error.details() or "no details"
    if code is grpc.StatusCode.UNAVAILABLE:
        return UnavailableError(
            f"no server answers at {address}: {details}",
            hint="start one (apiary dev, apiary serve), or set APIARY_ADDRESS",
            address=address,
        )
    error_class = _BY_CODE.get(code, ApiaryError)
    return error_class(f"{address} answered {code.name}: {details}", address=address)


class Attempts:
    """How long a call may still take, and the pauses between its attempts."""

    def __init__(self, request: Request[Any], budget_s: float) -> None:
        now = time.monotonic()
        self._request = request
        self._budget_s = budget_s
        self._budget_ends = now + budget_s
        self._deadline = None if request.timeout_s is None else now + request.timeout_s
        self._delay_s = _FIRST_DELAY_S

    def remaining_s(self) -> float | None:
        """The deadline of the attempt to be made now."""
        if self._deadline is None:
            return None
        left_s = max(0.0, self._deadline - time.monotonic())
        return left_s if self._request.cut_in_time else left_s + _SLACK_S

    def answered(self) -> None:
        """A stream has brought something: its server is there."""
        self._budget_ends = time.monotonic() + self._budget_s
        self._delay_s = _FIRST_DELAY_S

    def pause_s(self, error: ApiaryError) -> float:
        """The pause before the next attempt; raises ``error`` when there is to be none."""
        if not isinstance(error, UnavailableError) or not self._request.repeatable:
            raise error
        delay_s = self._delay_s * (0.5 + random.random() / 2)
        ends = time.monotonic() + delay_s
        if ends > self._budget_ends or (self._deadline is not None and ends > self._deadline):
            raise error
        self._delay_s = min(_MAX_DELAY_S, self._delay_s * 2)
        self._request.sent()
        return delay_s
