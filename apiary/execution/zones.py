"""Time zones as spans of constant offset, and which tz database they come from.

The arithmetic of a schedule never asks "is this wall-clock time ambiguous?". It walks over spans:
stretches of real time in which a zone's offset from UTC is constant. Where a span opens, the wall
clock either continues, jumps ahead (a gap: times that no clock shows) or is set back (an overlap:
times shown twice); `Span.seen` says which.

Instants are naive datetimes in UTC, wall-clock times naive datetimes in the zone.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from apiary.errors import BadArgument

__all__ = ["Span", "find_zone", "offset_at", "spans", "tzdata_version"]

# No two changes of offset in the tz database are closer than 95 hours (Freetown, 1939), and no
# change is larger than a day (Samoa, 2011); so a probe a day misses no change, and a change more
# than two days ago has no bearing on the wall clock of now.
_PROBE = timedelta(days=1)
_MARGIN = timedelta(days=2)
_SECOND = timedelta(seconds=1)

# Keys that the system's directory holds beside the zones: the machine's own zone, which differs
# between executors, and copies of the database, one of which counts leap seconds.
_NOT_ZONES = ("localtime", "posixrules", "Factory")
_NOT_ZONE_FOLDERS = ("posix/", "right/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Real time from `begin` (inclusive) to `end` (exclusive) at one `offset` from UTC.

    `seen` is the wall-clock time up to which the clock had run before `begin`. With `opened`, the
    wall clock at `begin`: ``seen < opened`` is a gap, ``seen > opened`` an overlap.
    """

    begin: datetime
    end: datetime
    offset: timedelta
    seen: datetime

    @property
    def opened(self) -> datetime:
        """The wall clock at `begin`."""
        return self.begin + self.offset

    @property
    def closed(self) -> datetime:
        """The wall clock at `end`, were the clock not changed then."""
        return self.end + self.offset


def find_zone(name: str) -> zoneinfo.ZoneInfo:
    """The zone of an IANA name such as ``Europe/Berlin``; BadArgument (``zone``) if unknown."""
    if isinstance(name, str) and name not in _NOT_ZONES and not name.startswith(_NOT_ZONE_FOLDERS):
        try:
            return zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            # A folder ("Europe"), a path outside, an over-long name: all are unknown zones.
            pass
    raise BadArgument(
        f"unknown time zone {_short(name)}: expected a name of the tz database",
        hint=_suggestion(name),
        path="zone",
    )


def _short(name: object, length: int = 60) -> str:
    text = repr(name)
    return text if len(text) <= length else text[: length - 3] + "..."


def _suggestion(name: object) -> str:
    names = sorted(zoneinfo.available_timezones().difference(_NOT_ZONES))
    known = {zone.lower(): zone for zone in names}
    close = difflib.get_close_matches(str(name)[:60].lower(), known, n=3)
    if close:
        return "Did you mean " + " or ".join(known[zone] for zone in close) + "?"
    return "Give a name such as UTC, Europe/Berlin or America/New_York."


def offset_at(zone: zoneinfo.ZoneInfo, instant: datetime) -> timedelta:
    """The zone's offset from UTC at an instant."""
    offset = instant.replace(tzinfo=UTC).astimezone(zone).utcoffset()
    assert offset is not None  # a ZoneInfo always has one
    return offset


@lru_cache(maxsize=16384)
def _changes(zone: zoneinfo.ZoneInfo, year: int) -> tuple[datetime, ...]:
    """The instants in a UTC year, its first excluded, at which the zone's offset changes."""
    found = []
    early, last = datetime(year, 1, 1), datetime(year + 1, 1, 1)
    before = offset_at(zone, early)
    while early < last:
        late = early + _PROBE
        after = offset_at(zone, late)
        if after != before:
            found.append(_first_with(zone, after, early, late))
        early, before = late, after
    return tuple(found)


def _first_with(
    zone: zoneinfo.ZoneInfo, offset: timedelta, early: datetime, late: datetime
) -> datetime:
    """The first second after `early` with an offset that holds at `late`, by bisection."""
    while late - early > _SECOND:
        middle = early + (late - early) // 2
        middle = middle.replace(microsecond=0)
        if offset_at(zone, middle) == offset:
            late = middle
        else:
            early = middle
    return late


def spans(zone: zoneinfo.ZoneInfo, instant: datetime) -> Iterator[Span]:
    """The zone's spans in order, without end; `instant` lies in one of the first.

    Spans are also cut at the turn of each UTC year: consecutive ones may share an offset.
    """
    begin = (instant - _MARGIN).replace(microsecond=0)
    offset = offset_at(zone, begin)
    seen = begin + offset
    while True:
        turn = datetime(begin.year + 1, 1, 1)
        end = next((change for change in _changes(zone, begin.year) if change > begin), turn)
        yield Span(begin=begin, end=end, offset=offset, seen=seen)
        seen = max(seen, end + offset)
        begin, offset = end, offset_at(zone, end)


def tzdata_version(zone: str = "UTC") -> str:
    """The version of the tz database from which `zone` is read, such as ``2026a``.

    Python reads the system's database, a zone that it lacks from the package ``tzdata``, and only
    the package with an empty PYTHONTZPATH. A system that does not state the version of its files
    gives ``sha256:`` and the first 16 digits of the digest of the zone's file: enough to see
    whether two fires were computed from the same rules.
    """
    find_zone(zone)
    for folder in zoneinfo.TZPATH:
        file = Path(folder, zone)
        if file.is_file():
            return _stated_version(Path(folder)) or _digest(file)
    return str(importlib.import_module("tzdata").IANA_VERSION)


@lru_cache(maxsize=16)
def _stated_version(folder: Path) -> str | None:
    listing = folder / "tzdata.zi"
    if listing.is_file():
        with listing.open(encoding="utf-8") as lines:
            heading = lines.readline().split()
        if heading[:2] == ["#", "version"]:
            return heading[2]
    version_file = folder / "+VERSION"
    return version_file.read_text(encoding="utf-8").strip() if version_file.is_file() else None


def _digest(file: Path) -> str:
    return "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()[:16]
