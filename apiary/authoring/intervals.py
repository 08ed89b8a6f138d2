"""PostgreSQL intervals in their ISO 8601 form, as timedeltas."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from ..errors import BadResult

__all__ = ["parse_interval"]

_PART = r"(?:(?P<{}>-?\d+(?:\.\d+)?){})?"
_ISO = re.compile(
    "P"
    + "".join(
        _PART.format(name, unit) for name, unit in [("years", "Y"), ("months", "M"), ("days", "D")]
    )
    + "(?:T"
    + "".join(
        _PART.format(name, unit)
        for name, unit in [("hours", "H"), ("minutes", "M"), ("seconds", "S")]
    )
    + ")?"
)


def parse_interval(text: str) -> timedelta:
    """``P1DT2H3.5S`` as a timedelta; BadResult for months and years, which have no fixed length."""
    match = _ISO.fullmatch(text)
    if match is None or match["years"] or match["months"]:
        raise BadResult(
            f"the interval {text} has no fixed length",
            hint="select it as text, or as extract(epoch FROM ...)",
        )
    seconds = Decimal(match["seconds"] or 0)
    return timedelta(
        days=int(match["days"] or 0),
        hours=int(match["hours"] or 0),
        minutes=int(match["minutes"] or 0),
        microseconds=int(seconds * 1_000_000),
    )
