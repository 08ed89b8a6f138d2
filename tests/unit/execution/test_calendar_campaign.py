"""Random expressions, zones and policies against a scan of every minute of two years.

The scan shares no code with what it checks. Each random field is drawn together with the set of its
values, so nothing is parsed. A window of two years is one large integer per question, with one bit
a minute: "which minutes of the wall clock does the expression name" is put together from one
pattern of 1440 bits a day, and a zone is the list of its runs of constant offset, found by looking
at every hour and then at every minute of an hour in which the offset changed. What fires is then
shifts and masks of these integers.

APIARY_CRON_CASES sets the number of pairs (the full campaign has 10,000), APIARY_CRON_SEED where
the random numbers start.
"""

from __future__ import annotations

import calendar
import os
import random
import zoneinfo
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache

import pytest

from apiary.errors import BadArgument
from apiary.execution.calendar import Cron

CASES = int(os.environ.get("APIARY_CRON_CASES", "200"))
SEED = int(os.environ.get("APIARY_CRON_SEED", "20261025"))
BATCHES = 10

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MINUTES = 1440
# Samoa skipped a day and St. John's changed at 00:01 in 2011; Egypt had no summer time in 2018 and
# a new one in 2023; North Korea, Sudan, Volgograd and others changed their standard time in 2018.
WINDOW_STARTS = (2010, 2018, 2023, 2026)
PADDING_DAYS = 2  # the wall clock is up to 14 hours away, and a gap up to a day long

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
ZONES = sorted(zoneinfo.available_timezones() - {"localtime", "Factory"})
# Zones with rules unlike the usual ones are drawn more often.
ODD_ZONES = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Pyongyang",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Volgograd",
    "Pacific/Apia",
    "Pacific/Chatham",
]

DayTest = Callable[[date], bool]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """An expression with what it means, by construction."""

    text: str
    minutes_of_day: frozenset[int]
    matches: DayTest
    is_rhythm: bool


@dataclass(frozen=True, kw_only=True)
class Run:
    """Minutes [begin, end) of real time, counted from 1970, at one offset in minutes."""

    begin: int
    end: int
    offset: int


def minute_of(moment: datetime) -> int:
    return (moment.replace(tzinfo=UTC) - EPOCH) // MINUTE


# --- drawing -------------------------------------------------------------------------------------


def draw_values(
    rng: random.Random, low: int, high: int, names: list[str] | None = None
) -> tuple[str, frozenset[int]]:
    """A field's text and values: star, star with step, range, range with step, or a list."""

    def written(value: int) -> str:
        if names and rng.random() < 0.4:
            return rng.choice([str.lower, str.upper])(names[value - low])
        return str(value)

    form = rng.choice(["star", "step", "range", "range step", "list", "list", "number", "number"])
    step = rng.randint(2, max(2, (high - low) // 2))
    first = rng.randint(low, high)
    last = rng.randint(first, high)
    if form == "star":
        return "*", frozenset(range(low, high + 1))
    if form == "step":
        return f"*/{step}", frozenset(range(low, high + 1, step))
    if form == "range":
        return f"{written(first)}-{written(last)}", frozenset(range(first, last + 1))
    if form == "range step":
        return f"{written(first)}-{written(last)}/{step}", frozenset(range(first, last + 1, step))
    chosen = rng.sample(range(low, high + 1), 1 if form == "number" else rng.randint(2, 4))
    return ",".join(map(written, chosen)), frozenset(chosen)


def is_written_as_rhythm(text: str, values: frozenset[int]) -> bool:
    return len(values) > 1 and ("*" in text or "-" in text or "/" in text)


def draw_day_of_month(rng: random.Random) -> tuple[str, DayTest]:
    special = rng.random()
    if special < 0.35:
        return "*", lambda day: True
    if special < 0.43:
        return "L", lambda day: (day + timedelta(days=1)).day == 1
    if special < 0.5:
        return "LW", lambda day: day == last_working_day(day)
    text, values = draw_values(rng, 1, 31)
    return text, lambda day: day.day in values


def last_working_day(day: date) -> date:
    length = calendar.monthrange(day.year, day.month)[1]
    days = [day.replace(day=number) for number in range(length - 3, length + 1)]
    return max(candidate for candidate in days if candidate.isoweekday() <= 5)


def draw_day_of_week(rng: random.Random) -> tuple[str, DayTest]:
    special = rng.random()
    if special < 0.4:
        return "*", lambda day: True
    weekday = rng.randrange(7)
    if special < 0.48:
        return (
            f"{weekday}L",
            lambda day: (
                day.isoweekday() % 7 == weekday and (day + timedelta(days=7)).month != day.month
            ),
        )
    if special < 0.56:
        nth = rng.randint(1, 5)
        return (
            f"{WEEKDAYS[weekday]}#{nth}",
            lambda day: day.isoweekday() % 7 == weekday and (day.day - 1) // 7 == nth - 1,
        )
    text, values = draw_values(rng, 0, 6, WEEKDAYS)
    if text.startswith("*/"):
        # The field runs from 0 to 7, and both are Sunday.
        values = frozenset(value % 7 for value in range(0, 8, int(text[2:])))
    return text, lambda day: day.isoweekday() % 7 in values


def draw_expression(rng: random.Random) -> Drawn:
    minute_text, minutes = draw_values(rng, 0, 59)
    # Hours around the changes of clocks, as often as not.
    hour_text, hours = draw_values(rng, 0, rng.choice([3, 23]))
    if hour_text.startswith("*"):
        hours = frozenset(range(0, 24, int(hour_text[2:] or 1)))
    month_text, months = draw_values(rng, 1, 12, MONTHS)
    if rng.random() < 0.5:
        month_text, months = "*", frozenset(range(1, 13))
    dom_text, dom = draw_day_of_month(rng)
    dow_text, dow = draw_day_of_week(rng)
    both = dom_text.startswith("*") or dow_text.startswith("*")

    def matches(day: date) -> bool:
        if day.month not in months:
            return False
        return (dom(day) and dow(day)) if both else (dom(day) or dow(day))

    return Drawn(
        text=f"{minute_text} {hour_text} {dom_text} {month_text} {dow_text}",
        minutes_of_day=frozenset(hour * 60 + minute for hour in hours for minute in minutes),
        matches=matches,
        is_rhythm=is_written_as_rhythm(minute_text, minutes)
        or is_written_as_rhythm(hour_text, hours),
    )


# --- the scan ------------------------------------------------------------------------------------


def shown_offset(zone: zoneinfo.ZoneInfo, moment: datetime) -> int:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset // MINUTE


@cache
def runs(name: str, year: int) -> tuple[Run, ...]:
    """The runs of constant offset of a zone in the two years from `year`, with padding."""
    zone = zoneinfo.ZoneInfo(name)
    moment = datetime(year, 1, 1, tzinfo=UTC) - timedelta(days=PADDING_DAYS)
    last = datetime(year + 2, 1, 1, tzinfo=UTC) + timedelta(days=PADDING_DAYS)
    found: list[Run] = []
    begin, offset = moment, shown_offset(zone, moment)
    while moment < last:
        moment += HOUR
        if shown_offset(zone, moment) != offset:
            change = moment - HOUR
            while shown_offset(zone, change) == offset:
                change += MINUTE
            found.append(Run(begin=minute_of(begin), end=minute_of(change), offset=offset))
            begin, offset = change, shown_offset(zone, change)
    found.append(Run(begin=minute_of(begin), end=minute_of(last), offset=offset))
    return tuple(found)


def bits(low: int, high: int) -> int:
    """The integer with the bits low..high-1 set."""
    return ((1 << (high - low)) - 1) << low if high > low else 0


def wall_clock_bits(drawn: Drawn, first_day: date, days: int) -> int:
    """One bit for each wall-clock minute from `first_day` that the expression names."""
    pattern = sum(1 << minute for minute in drawn.minutes_of_day).to_bytes(
        DAY_MINUTES // 8, "little"
    )
    nothing = bytes(DAY_MINUTES // 8)
    dates = (first_day + timedelta(days=number) for number in range(days))
    joined = b"".join(pattern if drawn.matches(day) else nothing for day in dates)
    return int.from_bytes(joined, "little")


def scan(drawn: Drawn, zone: str, policy: str, year: int) -> int:
    """One bit for each minute of real time, from two days before `year`, at which to fire."""
    first_day = date(year, 1, 1) - timedelta(days=2 * PADDING_DAYS)
    days = (date(year + 2, 1, 1) - first_day).days + 2 * PADDING_DAYS
    named = wall_clock_bits(drawn, first_day, days)
    shown_from = minute_of(datetime.combine(first_day, datetime.min.time()))
    origin = minute_of(datetime(year, 1, 1) - timedelta(days=PADDING_DAYS))

    twice = policy == "all" or (policy == "once" and drawn.is_rhythm)
    at_gap_end = policy == "all" or (policy == "once" and not drawn.is_rhythm)
    firing, shown = 0, 0
    for number, run in enumerate(runs(zone, year)):
        local = (run.begin + run.offset - shown_from, run.end + run.offset - shown_from)
        showing = bits(*local)
        fires = named & showing if twice else named & showing & ~shown
        firing |= (fires >> local[0]) << (run.begin - origin)
        skipped = bits(shown.bit_length(), local[0]) if number else 0
        if at_gap_end and named & skipped:
            firing |= 1 << (run.begin - origin)
        shown |= showing
    return firing


def as_bits(fires: Iterable[datetime], origin: int) -> int:
    """The same form for the fires that were computed, each on the minute and after the last."""
    flags = bytearray(800 * DAY_MINUTES // 8)
    last = 0.0
    for fire in fires:
        minute, rest = divmod(fire.timestamp(), 60)
        assert not rest
        assert minute > last
        last = minute
        position = int(minute) - origin
        flags[position >> 3] |= 1 << (position & 7)
    return int.from_bytes(flags, "little")


# --- the comparison ------------------------------------------------------------------------------


def check_pair(rng: random.Random) -> str:
    """Draw and compare one pair; what it was: "equal" or "never fires"."""
    drawn = draw_expression(rng)
    zone = rng.choice(ODD_ZONES if rng.random() < 0.4 else ZONES)
    policy = rng.choices(["once", "skip", "all"], [2, 1, 1])[0]
    year = rng.choice(WINDOW_STARTS)
    case = f"{drawn.text!r} in {zone}, {policy}, from {year}"

    origin = minute_of(datetime(year, 1, 1) - timedelta(days=PADDING_DAYS))
    start, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 2, 1, 1, tzinfo=UTC)
    window = bits(
        minute_of(datetime(year, 1, 1)) - origin + 1,
        minute_of(datetime(year + 2, 1, 1)) - origin + 1,
    )
    expected = scan(drawn, zone, policy, year) & window
    try:
        cron = Cron.parse(drawn.text, zone, policy)  # type: ignore[arg-type]
    except BadArgument as refusal:
        if expected or "never fire" not in refusal.message:
            raise AssertionError(case) from refusal
        return "never fires"
    assert cron.is_rhythm == drawn.is_rhythm, case
    found = as_bits(cron.between(start, end), origin)
    assert hex(found ^ expected) == "0x0", case
    check_next(rng, cron, expected, origin, case)
    return "equal"


def check_next(rng: random.Random, cron: Cron, expected: int, origin: int, case: str) -> None:
    """`next` from random moments, and from a fire itself, is the following bit."""
    for _ in range(3):
        minute = origin + rng.randrange(2 * DAY_MINUTES, 730 * DAY_MINUTES)
        after = EPOCH + minute * MINUTE + timedelta(seconds=rng.choice([0, 0, 30]))
        for _ in range(2):
            later = expected >> ((after - EPOCH) // MINUTE - origin + 1)
            if not later:
                break
            distance = (later & -later).bit_length()
            fire = EPOCH + ((after - EPOCH) // MINUTE + distance) * MINUTE
            shown = fire.astimezone(zoneinfo.ZoneInfo(cron.zone)).isoformat()
            assert cron.next(after).isoformat() == shown, f"{case}, after {after}"
            after = fire


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_schedules_equal_a_scan_of_every_minute_of_two_years(batch: int) -> None:
    rng = random.Random(f"{SEED}/{batch}")
    outcomes = [check_pair(rng) for _ in range(CASES // BATCHES)]
    assert outcomes.count("equal") > 0.9 * len(outcomes)


@pytest.mark.parametrize("policy", ["once", "skip", "all"])
@pytest.mark.parametrize(
    ("text", "seconds", "minutes", "hours", "is_rhythm"),
    [
        ("15 30 2 * * *", {15}, {30}, {2}, False),
        ("0,59 0,30 1,2 * * *", {0, 59}, {0, 30}, {1, 2}, False),
        ("*/7 30 2 * * *", set(range(0, 60, 7)), {30}, {2}, True),
        ("5 */20 * * * *", {5}, {0, 20, 40}, set(range(24)), True),
    ],
)
@pytest.mark.parametrize("day", [date(2026, 3, 29), date(2026, 10, 25)])
def test_seconds_equal_a_scan_of_every_second(
    policy: str,
    text: str,
    seconds: set[int],
    minutes: set[int],
    hours: set[int],
    is_rhythm: bool,
    day: date,
) -> None:
    """Berlin on the days of its changes, which both take place at 01:00 UTC."""
    zone = zoneinfo.ZoneInfo("Europe/Berlin")
    start = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(hours=3)
    twice = policy == "all" or (policy == "once" and is_rhythm)
    at_gap_end = policy == "all" or (policy == "once" and not is_rhythm)
    shown: set[datetime] = set()
    expected = []
    for number in range(1, 8 * 3600 + 1):
        moment = start + timedelta(seconds=number)
        local = moment.astimezone(zone).replace(tzinfo=None)
        named = local.second in seconds and local.minute in minutes and local.hour in hours
        at_gap_end_now = at_gap_end and day.month == 3 and local == datetime(2026, 3, 29, 3)
        if at_gap_end_now and 2 in hours:
            named = True
        if named and (twice or local not in shown):
            expected.append(moment)
        shown.add(local)
    cron = Cron.parse(text, "Europe/Berlin", policy)  # type: ignore[arg-type]
    assert list(cron.between(start, start + timedelta(hours=8))) == expected
