"""Checking requests: every refusal names the field and says what was expected."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..authoring.codec import ValueProblem
from ..authoring.values import loads
from ..errors import BadArgument, PayloadTooLarge
from ..execution.ids import checked_run_id

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

__all__ = [
    "checked_document",
    "checked_input",
    "checked_name",
    "checked_page_size",
    "optional_name",
    "optional_run_id",
    "seconds",
    "shorter",
    "time_of",
]

DEFAULT_PAGE = 50
MAX_PAGE = 1000
MAX_BYTES_PER_CHARACTER = 4


def checked_name(value: str, path: str, *, what: str, optional: bool = False) -> str:
    """A name that a request gives; BadArgument when it is missing or cannot be one."""
    if not value and not optional:
        raise BadArgument(f"{path} is missing; expected {what}", path=path)
    if "\0" in value:
        raise BadArgument(f"{path} holds U+0000; expected {what}", path=path)
    return value


def checked_input(text: str, limit_bytes: int, path: str = "input") -> str:
    """The JSON text of a call's arguments, within the limit; "" stands for no arguments."""
    if not text:
        return "{}"
    if len(text) * MAX_BYTES_PER_CHARACTER > limit_bytes:
        size_bytes = len(text.encode())
        what = "the arguments take" if path == "input" else f"{path} takes"
        if size_bytes > limit_bytes:
            raise PayloadTooLarge(
                f"{what} {size_bytes} bytes, the limit is {limit_bytes}",
                hint="store large data in a table and pass its key",
                path=path,
                size_bytes=size_bytes,
                limit_bytes=limit_bytes,
            )
    try:
        loads(text)
    except ValueProblem as problem:
        raise BadArgument(
            f"{path} {problem.message}",
            hint='the arguments are one JSON object by name, as in {"hotel_id": 1}'
            if path == "input"
            else "it is one JSON value",
            path=path,
        ) from None
    return text


def checked_document(text: str, limit_bytes: int, path: str = "input") -> Any:
    """The JSON document of a text within the limit; no text is no arguments, as {}."""
    return loads(checked_input(text, limit_bytes, path))


def optional_name(value: str, path: str) -> str | None:
    """A text that may be left out; BadArgument for one that nothing can be named."""
    return checked_name(value, path, what="a text", optional=True) or None


def optional_run_id(value: str, path: str = "run_id") -> str | None:
    """A run id that may be left out."""
    if not value:
        return None
    try:
        return checked_run_id(value)
    except BadArgument as error:
        error.metadata["path"] = path
        raise


def seconds(duration: Duration, path: str) -> float:
    """A positive duration in seconds."""
    value = duration.seconds + duration.nanos / 1e9
    if value <= 0:
        raise BadArgument(f"{path} is {value:g} s; expected more than 0", path=path)
    return value


def shorter(first: float | None, second: float | None) -> float | None:
    """The shorter of two times, where None is without end."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


def time_of(timestamp: Timestamp, path: str) -> datetime:
    """A moment; BadArgument for one that no calendar has."""
    try:
        return timestamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise BadArgument(f"{path} is no time: {error}", path=path) from None


def checked_page_size(size: int) -> int:
    """How many items a page has: 50 when not given, at most 1000."""
    if not 0 <= size <= MAX_PAGE:
        raise BadArgument(
            f"page_size is {size}; expected 1 to {MAX_PAGE}, or 0 for {DEFAULT_PAGE}",
            path="page_size",
        )
    return size or DEFAULT_PAGE
