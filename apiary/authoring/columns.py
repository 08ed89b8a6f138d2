"""Values of a database's parameters and columns that need more than the driver's own conversion.

Dates and times come as ISO 8601 text. What has no Python value, or would lose something on its way
into a column (a zone, a time of day), is refused with an error that says how to do it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from ..errors import BadArgument, BadResult
from .intervals import parse_interval

__all__ = ["TEMPORAL_PARAMETERS", "readable", "temporal_reader"]

_FRACTION = re.compile(r"\.(\d+)")
_SHORT_OFFSET = re.compile(r"([+-]\d\d)$")


def temporal_reader(type_name: str) -> Callable[[str], Any]:
    """How text of this type becomes a value: date, time, timetz, timestamp, timestamptz, interval.

    Raises BadResult for what Python cannot hold: infinity, years before 1 or after 9999, 24:00.
    """
    parse = _PARSERS[type_name]

    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError:
            raise BadResult(
                f"the {type_name} {text} has no Python value", hint="select it as text"
            ) from None

    return read


def _full(text: str) -> str:
    """ISO 8601 as Python before 3.11 reads it: six digits of a second, minutes of an offset."""
    padded = _FRACTION.sub(lambda match: "." + match[1].ljust(6, "0"), text)
    return _SHORT_OFFSET.sub(r"\1:00", padded) if ":" in padded else padded


_PARSERS: dict[str, Callable[[str], Any]] = {
    "date": date.fromisoformat,
    "time": lambda text: time.fromisoformat(_full(text)),
    "timetz": lambda text: time.fromisoformat(_full(text)),
    "timestamp": lambda text: datetime.fromisoformat(_full(text)),
    "timestamptz": lambda text: datetime.fromisoformat(_full(text)),
    "interval": parse_interval,
}


def _zoned(value: Any) -> Any:
    if isinstance(value, (datetime, time)) and value.utcoffset() is None:
        raise _refused(value, "has no zone, and the column has one", "give it its tzinfo")
    return value


def _without_zone(value: Any) -> Any:
    if isinstance(value, (datetime, time)) and value.tzinfo is not None:
        raise _refused(
            value, "has a zone, which the column would drop", "use a column with time zone"
        )
    return value


def _whole_day(value: Any) -> Any:
    if isinstance(value, datetime):
        raise _refused(value, "has a time of day, which the column would drop", "pass its .date()")
    return value


def _refused(value: Any, why: str, hint: str) -> BadArgument:
    return BadArgument(f"the {type(value).__name__} {value} {why}", hint=hint)


# By the type that the server inferred for a parameter.
TEMPORAL_PARAMETERS: dict[str, Callable[[Any], Any]] = {
    "date": _whole_day,
    "time without time zone": _without_zone,
    "time with time zone": _zoned,
    "timestamp without time zone": _without_zone,
    "timestamp with time zone": _zoned,
}


def readable(value: Any) -> Any:
    """A value that JSON has no form for, in the log of reads: as PostgreSQL's to_jsonb writes it.

    So a row's key is the same document in the log of reads and in the log of writes.
    """
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, (datetime, time)):
        text = value.isoformat()
        return _FRACTION.sub(lambda match: f".{match[1]}".rstrip("0").rstrip("."), text)
    if isinstance(value, (bytes, bytearray)):
        return "\\x" + bytes(value).hex()
    if isinstance(value, (date, UUID, timedelta)):
        return str(value)
    return value.value if isinstance(value, Enum) else str(value)


def _number(value: Decimal) -> Any:
    """A Decimal as a JSON number where one is exact, else as text."""
    if not value.is_finite() or value.adjusted() > 300:
        return str(value)
    whole = value.to_integral_value()
    if whole == value:
        return int(whole)
    nearest = float(value)
    return nearest if Decimal(repr(nearest)) == value else str(value)
