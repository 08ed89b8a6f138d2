"""When a schedule fires: cron expressions in a time zone, and fixed intervals.

Everything here is a pure function of its arguments: no clock is read and nothing is stored. A
*slot* is one moment at which a schedule is to fire; its key (`slot_key`) names the run that it
starts, which makes a slot fire once however many executors see it.

**Daylight saving.** A cron expression names wall-clock times. Where the clock jumps ahead some of
them do not exist (the *gap*); where it is set back some exist twice (the *overlap*). First, an
expression is one of two kinds:

- *rhythm*: its second, minute or hour field is written with ``*``, a range or a step and stands for
  more than one value (``*/30 1-3 * * *``, ``0 * * * *``, ``@hourly``);
- *fixed*: every other one (``30 2 * * *``, ``0,30 2,14 * * mon``, ``@daily``).

This is the distinction of Vixie cron, which looks for a field that begins with ``*``, widened to
ranges and steps. What fires then depends on the kind and on `dst_policy`:

===========  ============  ===================================  ================================
policy       kind          a time in the gap                    a time in the overlap
===========  ============  ===================================  ================================
``once``     fixed         fires at the moment the gap ends     fires at its first occurrence
``once``     rhythm        does not fire                        fires at both occurrences
``skip``     both          does not fire                        fires at its first occurrence
``all``      both          fires at the moment the gap ends     fires at both occurrences
===========  ============  ===================================  ================================

Times that come to lie on one moment fire once. So by default a fixed time fires exactly once for
each day that it names, and a rhythm runs on in real time, whatever the clock does.

Fires of `Cron` are aware datetimes that show the zone's wall clock with a *fixed* offset
(``2026-10-25T02:30:00+02:00``), not with the zone attached: Python compares two datetimes of one
zone by their wall clocks, and would call both 02:30 of that night equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Literal, get_args
from zoneinfo import ZoneInfo

from apiary.errors import BadArgument
from apiary.execution.wallclock import WallClock
from apiary.execution.zones import Span, find_zone, spans, tzdata_version

__all__ = [
    "Cron",
    "DstPolicy",
    "Interval",
    "MissedPolicy",
    "Schedule",
    "missed",
    "slot_key",
    "tzdata_version",
]

DstPolicy = Literal["once", "skip", "all"]
MissedPolicy = Literal["skip", "one", "all"]

_SECOND = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)
_LONGEST_INTERVAL = timedelta(days=36525)
_FIRST_YEAR, _LAST_YEAR = 1900, 9000

# An expression that has found no time in 60 years finds none: the rarest one recurs in 40.
_HORIZON = timedelta(days=60 * 366)
_PROBED_FROM = datetime(2026, 1, 1)


@dataclass(frozen=True)
class Cron:
    """A cron expression in a time zone; make one with `Cron.parse`."""

    expression: str
    zone: str = "UTC"
    dst_policy: DstPolicy = "once"
    _wall_clock: WallClock = field(init=False, repr=False, compare=False)
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)

    @classmethod
    def parse(cls, expression: str, zone: str = "UTC", dst_policy: DstPolicy = "once") -> Cron:
        """Read an expression: ``minute hour day-of-month month day-of-week``.

        With six fields the *first* is seconds. Also @hourly, @daily, @midnight, @weekly, @monthly,
        @yearly and @annually; names (mon, jan), lists, ranges, steps; L and LW as day of the month,
        5L (last Friday) and 1#2 (second Monday) as day of the week. When both day fields are
        restricted a day matches if either does; a field that begins with ``*`` is unrestricted.

        Raises BadArgument: ``cron`` for a wrong expression or one that can never fire, ``zone`` for
        an unknown time zone, ``dst_policy`` for an unknown policy.
        """
        return cls(expression, zone, dst_policy)

    def __post_init__(self) -> None:
        _check_choice("dst_policy", self.dst_policy, get_args(DstPolicy))
        object.__setattr__(self, "_zone", find_zone(self.zone))
        object.__setattr__(self, "_wall_clock", WallClock(self.expression))
        self._first(_PROBED_FROM)

    @property
    def is_rhythm(self) -> bool:
        """True for a rhythm within the day, false for fixed times of the day."""
        return self._wall_clock.repeats

    def next(self, after: datetime) -> datetime:
        """The first fire strictly after `after` (aware)."""
        return self._first(_instant("after", after))

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The fires after `start` up to and including `end` (both aware), in order."""
        return self._fires(_instant("start", start), _instant("end", end))

    def _first(self, after: datetime) -> datetime:
        for fire in self._fires(after, after + _HORIZON):
            return fire
        raise BadArgument(
            f"cron expression {self.expression!r} never fires in {self.zone} with dst_policy "
            f"{self.dst_policy!r}: every time that it names is skipped when the clock jumps ahead",
            hint="Name a time outside the change of clocks, or use dst_policy 'all'.",
            path="cron",
        )

    def _fires(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """The fires in ``(after, until]``, both instants."""
        for span in spans(self._zone, after):
            if span.begin > until:
                return
            shown_with = timezone(span.offset)
            for local in self._local_times(span, after, until):
                yield local.replace(tzinfo=shown_with)

    def _local_times(self, span: Span, after: datetime, until: datetime) -> Iterator[datetime]:
        """The wall-clock times at which to fire in the part of a span in ``(after, until]``."""
        first = after.replace(microsecond=0) + _SECOND + span.offset
        floor = max(first, span.opened if self._fires_twice else max(span.opened, span.seen))
        ceiling = min(span.closed, until + _MICROSECOND + span.offset)
        if self._fires_at_gap_end and span.begin > after and self._names(span.seen, span.opened):
            yield span.opened
            floor = span.opened + _SECOND
        yield from self._wall_clock.times(floor, ceiling)

    def _names(self, start: datetime, end: datetime) -> bool:
        return start < end and next(self._wall_clock.times(start, end), None) is not None

    @property
    def _fires_twice(self) -> bool:
        return self.dst_policy == "all" or (self.dst_policy == "once" and self.is_rhythm)

    @property
    def _fires_at_gap_end(self) -> bool:
        return self.dst_policy == "all" or (self.dst_policy == "once" and not self.is_rhythm)


@dataclass(frozen=True)
class Interval:
    """Fires at ``anchor + k * every`` for k = 0, 1, 2, ...: real time, no drift, no time zone.

    `every` is at least one second and at most 100 years (36525 days). The first fire is `anchor`
    itself. Fires are in UTC.
    """

    every: timedelta
    anchor: datetime

    def __post_init__(self) -> None:
        if not isinstance(self.every, timedelta) or not _SECOND <= self.every <= _LONGEST_INTERVAL:
            raise BadArgument(
                f"wrong interval {self.every!r}: expected a timedelta from one second to 100 years",
                path="every",
            )
        _instant("anchor", self.anchor)

    def next(self, after: datetime) -> datetime:
        """The first fire strictly after `after` (aware)."""
        return self._fire(self._index_after(_instant("after", after)))

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The fires after `start` up to and including `end` (both aware), in order."""
        first = self._index_after(_instant("start", start))
        last = self._index_after(_instant("end", end))
        return (self._fire(index) for index in range(first, last))

    def _index_after(self, instant: datetime) -> int:
        return max(0, (instant - _instant("anchor", self.anchor)) // self.every + 1)

    def _fire(self, index: int) -> datetime:
        return self.anchor.astimezone(UTC) + index * self.every


Schedule = Cron | Interval


def slot_key(fire: datetime) -> str:
    """The name of a slot: its instant as RFC 3339 in UTC, ``2026-10-25T00:30:00Z``.

    The two occurrences of one wall-clock time have two keys, and one instant has one key in
    whatever zone it is written.
    """
    return _instant("fire", fire).isoformat() + "Z"


def missed(
    spec: Schedule, last: datetime, now: datetime, policy: MissedPolicy, limit: int
) -> list[datetime]:
    """The slots to fire for the time after `last` up to and including `now`, oldest first.

    `last` is the last slot that was dealt with. ``skip``: none. ``one``: the latest slot, if there
    is any. ``all``: every slot, the oldest `limit` of them: a full list means that there may be
    more, and the caller asks again with its last slot as `last`, so that no slot is dropped.

    None is missed if `last` is after `now` (a clock that was set back). Raises BadArgument with
    ``policy``, ``limit`` (at least 1), ``last`` or ``now``.
    """
    _check_choice("policy", policy, get_args(MissedPolicy))
    if not isinstance(limit, int) or limit < 1:
        raise BadArgument(f"wrong limit {limit!r}: expected an integer of at least 1", path="limit")
    _instant("last", last)
    _instant("now", now)
    if policy == "skip":
        return []
    if policy == "one":
        latest = _latest(spec, last, now)
        return [] if latest is None else [latest]
    return list(islice(spec.between(last, now), limit))


def _latest(spec: Schedule, last: datetime, now: datetime) -> datetime | None:
    """The latest slot in ``(last, now]``, found without going through all of them."""
    last, now = last.astimezone(UTC), now.astimezone(UTC)
    reach = timedelta(minutes=1)
    while last < now:
        start = max(last, now - reach)
        latest = max(spec.between(start, now), default=None)
        if latest is not None or start == last:
            return latest
        reach *= 2
    return None


def _instant(path: str, moment: datetime) -> datetime:
    """An aware datetime as a naive one in UTC; BadArgument with `path` if it is not aware."""
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise BadArgument(
            f"{path} is {moment!r}: expected a datetime with a time zone",
            hint="Give it one, for example datetime.now(UTC).",
            path=path,
        )
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise BadArgument(
            f"{path} is {moment!r}: expected a year from {_FIRST_YEAR} to {_LAST_YEAR}", path=path
        )
    return moment.astimezone(UTC).replace(tzinfo=None)


def _check_choice(path: str, given: object, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise BadArgument(
            f"unknown {path} {given!r}: expected one of {', '.join(choices)}", path=path
        )
