"""Checks of arguments: each returns the value or raises `InvalidArgument` that names it.

The messages follow one template: what was given for which argument, what is expected, what to do.
Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from .errors import InvalidArgument, InvalidPlacement

__all__ = [
    "fits",
    "non_negative_number",
    "popularity",
    "positive_int",
    "positive_number",
    "refused",
]


def refused(argument: str, given: Any, expected: str, hint: str) -> InvalidArgument:
    """The error for one argument, in the library's template; the caller raises it."""
    return InvalidArgument(
        f"{argument} is {_shown(given)}; expected {expected}: {hint}",
        argument=argument,
        given=given,
        expected=expected,
    )


def positive_int(argument: str, value: Any) -> int:
    """An int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise refused(argument, value, "a whole number of at least 1", "give a count")
    return int(value)


def positive_number(argument: str, value: Any) -> float:
    """A finite number above 0."""
    if not _is_number(value) or not value > 0:
        raise refused(argument, value, "a finite number above 0", "give the quantity in SI units")
    return float(value)


def non_negative_number(argument: str, value: Any) -> float:
    """A finite number of at least 0."""
    if not _is_number(value) or not value >= 0:
        raise refused(
            argument, value, "a finite number of at least 0", "give the quantity in SI units"
        )
    return float(value)


def popularity(values: Sequence[int | float], experts: int | None = None) -> list[int | float]:
    """Token counts of one layer, one per expert: finite, at least 0, ``experts`` of them.

    Numbers of numerical libraries come back as Python's own.
    """
    counts = list(values)
    if not counts:
        raise refused("popularity", counts, "one count per expert", "give at least one expert")
    if experts is not None and len(counts) != experts:
        raise refused(
            "popularity",
            counts,
            f"{experts} counts, one per expert",
            f"{len(counts)} were given; list experts without tokens as 0",
        )
    for expert, count in enumerate(counts):
        if not _is_number(count) or count < 0:
            raise refused(
                f"popularity[{expert}]",
                count,
                "a finite number of tokens of at least 0",
                "count the tokens that the router sent to this expert, before drops",
            )
    return [int(count) if isinstance(count, Integral) else float(count) for count in counts]


def fits(experts: int, slots: int) -> None:
    """Raise `InvalidPlacement` unless every expert can have a slot of its own."""
    positive_int("experts", experts)
    positive_int("slots", slots)
    if slots < experts:
        raise InvalidPlacement(
            f"{experts} experts on {slots} slots; expected at least one slot per expert: "
            "add ranks or slots per rank, or use fewer experts",
            argument="slots",
            given=slots,
            expected=f"at least {experts}",
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _shown(value: Any, limit: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
