"""The wall-clock times that a cron expression names, with no time zone in sight.

cronsim reads the expression and decides which days match; enumerating the times is done here,
because cronsim's iterator applies its own daylight-saving rules and parses anew on each call.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import NamedTuple

from cronsim import CronSim, CronSimError

from apiary.errors import BadArgument

__all__ = ["WallClock"]

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"
_WEEKDAYS = "sun mon tue wed thu fri sat"
_NUMBERS = {f"{number:0{width}}": number for width in (1, 2) for number in range(60)}
_NUMBERS |= {name: number for number, name in enumerate(_MONTHS.split(), start=1)}
_NUMBERS |= {name: number for number, name in enumerate(_WEEKDAYS.split())}
_LONGEST_EXPRESSION = 255
_DAY = timedelta(days=1)

# Any day will do: the rarest expression (a 29 February on a given weekday) recurs within 40 years,
# and cronsim searches 50.
_SEARCH_FROM = datetime(2000, 1, 1)


class _Field(NamedTuple):
    name: str
    allowed: str


_FIELDS = (
    _Field("second", "0-59"),
    _Field("minute", "0-59"),
    _Field("hour", "0-23"),
    _Field("day-of-month", "1-31, L (last day) or LW (last working day)"),
    _Field("month", "1-12 or JAN-DEC"),
    _Field("day-of-week", "0-7 (0 and 7 are Sunday) or SUN-SAT, 5L (last Friday), 1#2"),
)


class WallClock:
    """The wall-clock times of one expression: five fields, six with seconds first, or an alias.

    `repeats` is true if the expression describes a rhythm within the day and not times of the day:
    its second, minute or hour field is written with ``*``, a range or a step, and stands for more
    than one value.
    """

    __slots__ = ("_hours", "_minutes", "_months", "_seconds", "_sim", "repeats")

    def __init__(self, expression: str) -> None:
        """Raises BadArgument (``cron``) if the expression is wrong or names no time at all."""
        sim = _parse(expression)
        self._sim = sim
        self._months = frozenset(sim.months)
        self._hours = sorted(sim.hours)
        self._minutes = sorted(sim.minutes)
        self._seconds = sorted(sim.seconds)
        self.repeats = any(
            len(values) > 1 and any(mark in text for mark in "*-/")
            for text, values in zip(
                sim.parts[:3], (self._seconds, self._minutes, self._hours), strict=True
            )
        )

    def times(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The wall-clock times in ``[start, end)``, in order."""
        for day in self._days(start.date(), end.date()):
            floor = start.time() if day == start.date() else time.min
            for at in self._times_of_day(floor):
                moment = datetime.combine(day, at)
                if moment >= end:
                    return
                yield moment

    def _days(self, first: date, last: date) -> Iterator[date]:
        day = first
        while day <= last:
            if day.month not in self._months:
                day = (day.replace(day=1) + 31 * _DAY).replace(day=1)
                continue
            if self._sim.match_day(day):
                yield day
            day += _DAY

    def _times_of_day(self, floor: time) -> Iterator[time]:
        for hour in self._hours:
            if hour < floor.hour:
                continue
            for minute in self._minutes:
                if (hour, minute) < (floor.hour, floor.minute):
                    continue
                for second in self._seconds:
                    at = time(hour, minute, second)
                    if at >= floor:
                        yield at


def _parse(expression: str) -> CronSim:
    fields = _expand(expression)
    try:
        sim = CronSim(" ".join(fields), _SEARCH_FROM)
    except CronSimError as error:
        raise _refusal(expression, _explain(fields, str(error))) from error
    if any(part.startswith(("L/", "LW/")) for part in sim.parts[3].split(",")):
        # cronsim leaves the step out in silence.
        raise _refusal(expression, "a last day of the month cannot have a step")
    if next(sim, None) is None:
        raise _refusal(expression, "no day of the calendar matches it, so it would never fire")
    return sim


def _expand(expression: str) -> list[str]:
    """The five or six fields of an expression, aliases replaced."""
    if not isinstance(expression, str):
        raise _refusal(expression, f"expected text, got {type(expression).__name__}")
    if len(expression) > _LONGEST_EXPRESSION:
        raise _refusal(expression, f"it is longer than {_LONGEST_EXPRESSION} characters")
    name = expression.strip().lower()
    if name.startswith("@"):
        if name not in _ALIASES:
            raise _refusal(expression, "expected one of " + ", ".join(_ALIASES))
        return _ALIASES[name].split()
    fields = expression.split()
    if len(fields) not in (5, 6):
        found = f"{len(fields)} fields" if fields else "nothing"
        raise _refusal(expression, f"expected 5 fields, or 6 with seconds first, and found {found}")
    return [",".join(map(_without_idle_step, field.split(","))) for field in fields]


def _without_idle_step(term: str) -> str:
    """``3-3`` for ``3-3/2``: cronsim takes a range of one value for "from there on"."""
    span, _, step = term.partition("/")
    first, _, last = span.lower().partition("-")
    if step.isdecimal() and int(step) and last and _NUMBERS.get(first) == _NUMBERS.get(last, -1):
        return span
    return term


def _explain(fields: list[str], message: str) -> str:
    """What is wrong with which field; cronsim says "Bad " and the field's name."""
    if len(fields) == 5:
        fields = ["0", *fields]
    for field, text in zip(_FIELDS, fields, strict=True):
        if message == f"Bad {field.name}":
            if field.name == "day-of-month" and _is_valid([*fields[:4], "*", "*"]):
                return f"no month that it names has a day {text}, so it would never fire"
            return f"{text!r} is no {field.name}: expected {field.allowed}, *, lists, ranges, steps"
    return message


def _is_valid(fields: list[str]) -> bool:
    try:
        CronSim(" ".join(fields), _SEARCH_FROM)
    except CronSimError:
        return False
    return True


def _refusal(expression: object, problem: str) -> BadArgument:
    text = repr(expression)
    shown = text if len(text) <= 80 else text[:77] + "..."
    return BadArgument(
        f"wrong cron expression {shown}: {problem}",
        hint="Fields: [second] minute hour day-of-month month day-of-week; '30 2 * * mon-fri'.",
        path="cron",
    )
