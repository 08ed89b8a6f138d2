"""When schedules fire: worked examples, daylight saving, refusals, and missed slots."""

from __future__ import annotations

import hashlib
import importlib.resources
import pickle
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from apiary.errors import BadArgument
from apiary.execution.calendar import Cron, DstPolicy, Interval, missed, slot_key, tzdata_version

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
CAIRO = zoneinfo.ZoneInfo("Africa/Cairo")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(cron: Cron, start: str, end: str) -> list[str]:
    """The fires between two wall-clock times of the schedule's own zone, as text."""
    zone = zoneinfo.ZoneInfo(cron.zone)
    first, last = (datetime.fromisoformat(text).replace(tzinfo=zone) for text in (start, end))
    return [fire.isoformat(timespec="minutes") for fire in cron.between(first, last)]


class TestWorkedExamples:
    def test_daily_time_in_the_repeated_hour_fires_once(self) -> None:
        cron = Cron.parse("30 2 * * *", "Europe/Berlin")
        assert fires(cron, "2026-10-24T12:00", "2026-10-26T12:00") == [
            "2026-10-25T02:30+02:00",
            "2026-10-26T02:30+01:00",
        ]

    def test_daily_time_in_the_skipped_hour_fires_when_the_gap_ends(self) -> None:
        cron = Cron.parse("30 2 * * *", "Europe/Berlin")
        assert fires(cron, "2026-03-28T12:00", "2026-03-30T12:00") == [
            "2026-03-29T03:00+02:00",
            "2026-03-30T02:30+02:00",
        ]

    def test_daily_time_in_the_skipped_hour_does_not_fire_with_skip(self) -> None:
        cron = Cron.parse("30 2 * * *", "Europe/Berlin", "skip")
        assert fires(cron, "2026-03-28T12:00", "2026-03-30T12:00") == ["2026-03-30T02:30+02:00"]

    def test_rhythm_fires_eight_times_in_autumn_and_four_times_in_spring(self) -> None:
        cron = Cron.parse("*/30 1-3 * * *", "Europe/Berlin")
        assert fires(cron, "2026-10-25T00:00", "2026-10-25T23:59") == [
            "2026-10-25T01:00+02:00",
            "2026-10-25T01:30+02:00",
            "2026-10-25T02:00+02:00",
            "2026-10-25T02:30+02:00",
            "2026-10-25T02:00+01:00",
            "2026-10-25T02:30+01:00",
            "2026-10-25T03:00+01:00",
            "2026-10-25T03:30+01:00",
        ]
        assert fires(cron, "2026-03-29T00:00", "2026-03-29T23:59") == [
            "2026-03-29T01:00+01:00",
            "2026-03-29T01:30+01:00",
            "2026-03-29T03:00+02:00",
            "2026-03-29T03:30+02:00",
        ]

    def test_weekly_in_new_york_keeps_its_wall_clock_time(self) -> None:
        cron = Cron.parse("0 9 * * 1", "America/New_York")
        assert fires(cron, "2026-03-01T00:00", "2026-03-20T00:00") == [
            "2026-03-02T09:00-05:00",
            "2026-03-09T09:00-04:00",
            "2026-03-16T09:00-04:00",
        ]

    def test_leap_day_fires_in_leap_years_only(self) -> None:
        cron = Cron.parse("0 0 29 2 *")
        first = cron.next(utc("2026-01-01"))
        assert [first, cron.next(first)] == [utc("2028-02-29"), utc("2032-02-29")]
        assert cron.next(utc("2096-03-01")) == utc("2104-02-29")

    def test_day_of_month_or_day_of_week_when_both_are_restricted(self) -> None:
        cron = Cron.parse("0 0 13 * 5")
        days = [fire.day for fire in cron.between(utc("2026-02-01"), utc("2026-02-28"))]
        assert days == [6, 13, 20, 27]

    @pytest.mark.parametrize("year", range(2022, 2029))
    def test_cairo_job_stays_at_its_local_time_through_every_switch(self, year: int) -> None:
        cron = Cron.parse("59 9 * * *", "Africa/Cairo")
        start, end = (datetime(y, 1, 1, tzinfo=CAIRO) for y in (year, year + 1))
        found = list(cron.between(start, end))
        days = (datetime(year + 1, 1, 1) - datetime(year, 1, 1)).days
        assert [fire.timetuple().tm_yday for fire in found] == list(range(1, days + 1))
        assert {(fire.hour, fire.minute) for fire in found} == {(9, 59)}
        offsets = {fire.utcoffset() for fire in found}
        assert len(offsets) == (1 if year == 2022 else 2)  # Egypt has had summer time since 2023


class TestDaylightSaving:
    AUTUMN = ("2026-10-24T23:59", "2026-10-25T23:59")
    SPRING = ("2026-03-28T23:59", "2026-03-29T23:59")

    @pytest.mark.parametrize(
        ("expression", "policy", "autumn", "spring"),
        [
            ("30 2 * * *", "once", 1, 1),
            ("30 2 * * *", "skip", 1, 0),
            ("30 2 * * *", "all", 2, 1),
            ("*/30 1-3 * * *", "once", 8, 4),
            ("*/30 1-3 * * *", "skip", 6, 4),
            ("*/30 1-3 * * *", "all", 8, 4),
            ("0 * * * *", "once", 25, 23),
            ("@hourly", "once", 25, 23),
            ("* * * * *", "once", 25 * 60, 23 * 60),
            ("15 2-2 * * *", "once", 1, 1),
            ("15 */24 * * *", "once", 1, 1),
            ("0,30 2 * * *", "once", 2, 1),
            ("0 2,3 * * *", "once", 2, 1),
        ],
    )
    def test_fires_on_the_days_of_the_change(
        self, expression: str, policy: DstPolicy, autumn: int, spring: int
    ) -> None:
        cron = Cron.parse(expression, "Europe/Berlin", policy)
        assert len(fires(cron, *self.AUTUMN)) == autumn
        assert len(fires(cron, *self.SPRING)) == spring

    def test_all_fires_at_both_occurrences_in_order_of_real_time(self) -> None:
        cron = Cron.parse("0,30 2 * * *", "Europe/Berlin", "all")
        assert fires(cron, *self.AUTUMN) == [
            "2026-10-25T02:00+02:00",
            "2026-10-25T02:30+02:00",
            "2026-10-25T02:00+01:00",
            "2026-10-25T02:30+01:00",
        ]

    def test_next_from_inside_the_repeated_hour_knows_which_occurrence_it_is(self) -> None:
        fixed = Cron.parse("30 2 * * *", "Europe/Berlin")
        rhythm = Cron.parse("*/30 * * * *", "Europe/Berlin")
        first, second = (datetime(2026, 10, 25, 2, 10, tzinfo=BERLIN, fold=f) for f in (0, 1))
        assert fixed.next(first).isoformat() == "2026-10-25T02:30:00+02:00"
        assert fixed.next(second).isoformat() == "2026-10-26T02:30:00+01:00"
        assert rhythm.next(first).isoformat() == "2026-10-25T02:30:00+02:00"
        assert rhythm.next(second).isoformat() == "2026-10-25T02:30:00+01:00"

    def test_both_occurrences_of_a_time_compare_as_different_moments(self) -> None:
        cron = Cron.parse("30 2 * * *", "Europe/Berlin", "all")
        first = cron.next(utc("2026-10-24T22:00"))
        second = cron.next(first)
        assert second - first == timedelta(hours=1)
        assert len({first, second}) == 2

    def test_change_of_clocks_at_midnight(self) -> None:
        # Cairo's clocks jump from 00:00 to 01:00 on 24 April and back to 23:00 on 29 October.
        spring = Cron.parse("30 0 * * *", "Africa/Cairo")
        assert fires(spring, "2026-04-23T12:00", "2026-04-25T12:00") == [
            "2026-04-24T01:00+03:00",
            "2026-04-25T00:30+03:00",
        ]
        autumn = Cron.parse("30 23 * * *", "Africa/Cairo")
        assert fires(autumn, "2026-10-29T12:00", "2026-10-31T12:00") == [
            "2026-10-29T23:30+03:00",
            "2026-10-30T23:30+02:00",
        ]

    def test_overlap_that_spans_two_days_keeps_real_time_order(self) -> None:
        # St. John's set its clock back from 00:01 on the 7th to 23:01 on the 6th.
        cron = Cron.parse("0,30 0,23 * * *", "America/St_Johns", "all")
        assert fires(cron, "2010-11-06T12:00", "2010-11-07T12:00") == [
            "2010-11-06T23:00-02:30",
            "2010-11-06T23:30-02:30",
            "2010-11-07T00:00-02:30",
            "2010-11-06T23:30-03:30",
            "2010-11-07T00:00-03:30",
            "2010-11-07T00:30-03:30",
        ]

    def test_a_skipped_day_fires_at_its_end(self) -> None:
        # Samoa crossed the date line: 30 December 2011 did not take place.
        cron = Cron.parse("30 2 * * *", "Pacific/Apia")
        assert fires(cron, "2011-12-29T00:00", "2011-12-31T12:00") == [
            "2011-12-29T02:30-10:00",
            "2011-12-31T00:00+14:00",
            "2011-12-31T02:30+14:00",
        ]

    def test_half_hour_summer_time(self) -> None:
        cron = Cron.parse("15 2 * * *", "Australia/Lord_Howe")
        assert fires(cron, "2026-10-03T12:00", "2026-10-05T12:00") == [
            "2026-10-04T02:30+11:00",
            "2026-10-05T02:15+11:00",
        ]


class TestExpressions:
    @pytest.mark.parametrize(
        ("expression", "start", "expected"),
        [
            ("@hourly", "2026-01-01T00:00", "2026-01-01T01:00"),
            ("@daily", "2026-01-01T00:00", "2026-01-02T00:00"),
            ("@midnight", "2026-01-01T00:00", "2026-01-02T00:00"),
            ("@weekly", "2026-01-01T00:00", "2026-01-04T00:00"),
            ("@monthly", "2026-01-01T00:00", "2026-02-01T00:00"),
            ("@Yearly", "2026-01-01T00:00", "2027-01-01T00:00"),
            ("@annually", "2026-01-01T00:00", "2027-01-01T00:00"),
            ("0 8 * jan,MAR mon-wed", "2026-01-29T00:00", "2026-03-02T08:00"),
            ("5-10/2 * * * *", "2026-01-01T00:06", "2026-01-01T00:07"),
            ("5-05/2 3-3/3 * jan-1/2 *", "2026-01-01T03:05", "2026-01-02T03:05"),
            ("5/20 * * * *", "2026-01-01T00:30", "2026-01-01T00:45"),
            ("0 0 L * *", "2026-02-01T00:00", "2026-02-28T00:00"),
            ("0 0 LW * *", "2026-05-01T00:00", "2026-05-29T00:00"),
            ("0 0 * * 5L", "2026-05-01T00:00", "2026-05-29T00:00"),
            ("0 0 * * 1#2", "2026-05-01T00:00", "2026-05-11T00:00"),
            ("0 0 * * 7", "2026-01-01T00:00", "2026-01-04T00:00"),
            ("*/20 30 9 * * *", "2026-01-01T09:30:20", "2026-01-01T09:30:40"),
            ("  0   0 1 1 * ", "2026-01-01T00:00", "2027-01-01T00:00"),
        ],
    )
    def test_next(self, expression: str, start: str, expected: str) -> None:
        assert Cron.parse(expression).next(utc(start)) == utc(expected)

    @pytest.mark.parametrize(
        ("expression", "says"),
        [
            ("61 * * * *", "'61' is no minute: expected 0-59"),
            ("* 24 * * *", "'24' is no hour: expected 0-23"),
            ("60 * * * * *", "'60' is no second"),
            ("* * 0 * *", "'0' is no day-of-month"),
            ("* * * 13 *", "'13' is no month"),
            ("* * * * fri-mon", "'fri-mon' is no day-of-week"),
            ("*/0 * * * *", "'*/0' is no minute"),
            ("* * * *", "found 4 fields"),
            ("* * * * * * *", "found 7 fields"),
            ("", "found nothing"),
            ("   ", "found nothing"),
            ("@reboot", "expected one of @hourly"),
            ("* * L/2 * *", "cannot have a step"),
            ("0 0 30 2 *", "no month that it names has a day 30"),
            ("0 0 31 4,6,9,11 *", "would never fire"),
            ("0 0 LW 2 */6", "would never fire"),
            ("0," * 200 + "0 * * * *", "longer than 255"),
            (None, "expected text, got NoneType"),
        ],
    )
    def test_wrong_expression_is_refused_with_its_reason(self, expression: str, says: str) -> None:
        with pytest.raises(BadArgument) as refusal:
            Cron.parse(expression)
        assert refusal.value.path == "cron"
        assert says in refusal.value.message

    @pytest.mark.parametrize("expression", ["30 2 * 3 0L", "*/30 2 * 3 0L"])
    def test_expression_whose_every_time_is_skipped_is_refused(self, expression: str) -> None:
        with pytest.raises(BadArgument, match="never fires in Europe/Berlin") as refusal:
            Cron.parse(expression, "Europe/Berlin", "skip")
        assert refusal.value.path == "cron"
        shifted = Cron.parse(expression, "Europe/Berlin", "all").next(utc("2026-01-01"))
        assert shifted.isoformat() == "2026-03-29T03:00:00+02:00"

    @pytest.mark.parametrize(
        "zone",
        ["Europe", "Europe/Berln", "localtime", "right/UTC", "../UTC", "", "a\0b", "x" * 999],
    )
    def test_unknown_zone_is_refused(self, zone: str) -> None:
        with pytest.raises(BadArgument, match="unknown time zone") as refusal:
            Cron.parse("@daily", zone)
        assert refusal.value.path == "zone"

    def test_unknown_zone_proposes_the_nearest_name(self) -> None:
        with pytest.raises(BadArgument) as refusal:
            Cron.parse("@daily", "europe/berlin")
        assert "Europe/Berlin" in str(refusal.value.hint)

    def test_unknown_policy_is_refused(self) -> None:
        with pytest.raises(BadArgument, match="once, skip, all") as refusal:
            Cron.parse("@daily", "UTC", "twice")  # type: ignore[arg-type]
        assert refusal.value.path == "dst_policy"

    def test_time_without_a_zone_is_refused(self) -> None:
        cron = Cron.parse("@daily")
        with pytest.raises(BadArgument) as refusal:
            cron.next(datetime(2026, 1, 1))
        assert refusal.value.path == "after"
        with pytest.raises(BadArgument) as refusal:
            cron.between(utc("2026-01-01"), datetime(2026, 1, 2))
        assert refusal.value.path == "end"

    def test_next_is_strictly_after_and_between_includes_its_end(self) -> None:
        cron = Cron.parse("0 12 * * *")
        noon = utc("2026-01-01T12:00")
        day = timedelta(days=1)
        assert cron.next(noon) == noon + day
        assert cron.next(noon - timedelta(microseconds=1)) == noon
        assert cron.next(noon + timedelta(microseconds=1)) == noon + day
        assert list(cron.between(noon, noon + 2 * day)) == [noon + day, noon + 2 * day]
        assert list(cron.between(noon, noon)) == []

    def test_equal_schedules_are_equal_and_survive_pickle(self) -> None:
        cron = Cron.parse("30 2 * * *", "Europe/Berlin")
        copy = pickle.loads(pickle.dumps(cron))
        assert copy == cron == Cron.parse("30 2 * * *", "Europe/Berlin")
        assert copy.next(utc("2026-03-29")) == cron.next(utc("2026-03-29"))
        assert cron != Cron.parse("30 2 * * *", "Europe/Berlin", "all")


class TestInterval:
    ANCHOR = utc("2026-01-01T00:00:07")

    def test_fires_on_multiples_from_the_anchor_without_drift(self) -> None:
        interval = Interval(timedelta(seconds=90), self.ANCHOR)
        late = self.ANCHOR + timedelta(days=3650, seconds=1)
        assert (interval.next(late) - self.ANCHOR) % timedelta(seconds=90) == timedelta(0)
        assert late < interval.next(late) <= late + timedelta(seconds=90)

    def test_first_fire_is_the_anchor(self) -> None:
        interval = Interval(timedelta(hours=1), self.ANCHOR)
        assert interval.next(utc("2020-01-01")) == self.ANCHOR
        assert interval.next(self.ANCHOR) == self.ANCHOR + timedelta(hours=1)

    def test_between_excludes_its_start_and_includes_its_end(self) -> None:
        interval = Interval(timedelta(hours=1), self.ANCHOR)
        hours = [self.ANCHOR + timedelta(hours=k) for k in range(4)]
        assert list(interval.between(hours[0], hours[3])) == hours[1:]
        assert list(interval.between(utc("2025-12-31"), hours[0])) == hours[:1]
        assert list(interval.between(hours[3], hours[0])) == []

    def test_real_time_counts_across_a_change_of_clocks(self) -> None:
        interval = Interval(timedelta(days=1), datetime(2026, 3, 28, 12, tzinfo=BERLIN))
        assert interval.next(interval.anchor) == utc("2026-03-29T11:00")

    @pytest.mark.parametrize(
        "every",
        [timedelta(0), timedelta(seconds=-5), timedelta(milliseconds=999), timedelta.max, 5],
    )
    def test_wrong_interval_is_refused(self, every: timedelta) -> None:
        with pytest.raises(BadArgument) as refusal:
            Interval(every, self.ANCHOR)
        assert refusal.value.path == "every"

    def test_anchor_without_a_zone_is_refused(self) -> None:
        with pytest.raises(BadArgument) as refusal:
            Interval(timedelta(hours=1), datetime(2026, 1, 1))
        assert refusal.value.path == "anchor"


class TestSlotKey:
    def test_key_is_the_instant_in_utc(self) -> None:
        first, second = (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=f) for f in (0, 1))
        assert slot_key(first) == "2026-10-25T00:30:00Z"
        assert slot_key(second) == "2026-10-25T01:30:00Z"

    def test_one_instant_has_one_key_in_any_zone(self) -> None:
        moment = utc("2026-06-01T12:00:00.25")
        elsewhere = moment.astimezone(timezone(timedelta(hours=-7)))
        assert slot_key(moment) == slot_key(elsewhere) == "2026-06-01T12:00:00.250000Z"

    def test_every_fire_of_a_night_has_its_own_key(self) -> None:
        cron = Cron.parse("* * * * *", "Europe/Berlin")
        found = list(cron.between(utc("2026-10-24T22:00"), utc("2026-10-25T06:00")))
        assert len({slot_key(fire) for fire in found}) == len(found) == 8 * 60

    def test_time_without_a_zone_is_refused(self) -> None:
        with pytest.raises(BadArgument) as refusal:
            slot_key(datetime(2026, 1, 1))
        assert refusal.value.path == "fire"


class TestMissed:
    LAST = utc("2026-01-01T00:00")
    NOW = utc("2026-01-01T05:30")

    @pytest.mark.parametrize(
        "spec", [Cron.parse("0 * * * *"), Interval(timedelta(hours=1), utc("2025-12-01"))]
    )
    def test_policies(self, spec: Cron | Interval) -> None:
        hours = [self.LAST + timedelta(hours=k) for k in range(1, 6)]
        assert missed(spec, self.LAST, self.NOW, "skip", 10) == []
        assert missed(spec, self.LAST, self.NOW, "one", 10) == hours[-1:]
        assert missed(spec, self.LAST, self.NOW, "all", 10) == hours

    def test_all_in_batches_drops_no_slot(self) -> None:
        cron = Cron.parse("0 * * * *")
        found: list[datetime] = []
        last = self.LAST
        while batch := missed(cron, last, self.NOW, "all", 2):
            assert len(batch) <= 2
            found += batch
            last = batch[-1]
        assert found == list(cron.between(self.LAST, self.NOW))

    def test_nothing_is_missed_when_no_slot_has_passed_or_the_clock_was_set_back(self) -> None:
        cron = Cron.parse("0 0 1 1 *")
        for policy in ("skip", "one", "all"):
            assert missed(cron, self.LAST, self.NOW, policy, 5) == []
            assert missed(cron, self.NOW, self.LAST, policy, 5) == []

    def test_slot_that_is_due_now_is_included(self) -> None:
        cron = Cron.parse("30 5 * * *")
        assert missed(cron, self.LAST, self.NOW, "one", 1) == [self.NOW]

    def test_one_finds_the_latest_after_years_away(self) -> None:
        often = Cron.parse("* * * * * *")
        rarely = Cron.parse("0 0 29 2 *")
        now = utc("2031-05-05T05:05:05.5")
        assert missed(often, self.LAST, now, "one", 1) == [now.replace(microsecond=0)]
        assert missed(rarely, self.LAST, now, "one", 1) == [utc("2028-02-29")]

    def test_one_takes_the_later_occurrence_of_a_repeated_time(self) -> None:
        cron = Cron.parse("30 2 * * *", "Europe/Berlin", "all")
        now = datetime(2026, 10, 25, 12, tzinfo=BERLIN)
        assert missed(cron, self.LAST, now, "one", 1) == [utc("2026-10-25T01:30")]

    @pytest.mark.parametrize(
        ("policy", "limit", "path"), [("some", 1, "policy"), ("all", 0, "limit")]
    )
    def test_wrong_arguments_are_refused(self, policy: str, limit: int, path: str) -> None:
        with pytest.raises(BadArgument) as refusal:
            missed(Cron.parse("@daily"), self.LAST, self.NOW, policy, limit)  # type: ignore[arg-type]
        assert refusal.value.path == path


class TestTzdataVersion:
    @pytest.fixture(autouse=True)
    def restored_search_path(self) -> Iterator[None]:
        before = zoneinfo.TZPATH
        yield
        zoneinfo.reset_tzpath(before)

    def system_with(self, folder: Path, *, listing: str | None) -> Path:
        file = folder / "Europe" / "Berlin"
        file.parent.mkdir()
        source = importlib.resources.files("tzdata").joinpath("zoneinfo", "Europe", "Berlin")
        file.write_bytes(source.read_bytes())
        if listing is not None:
            (folder / "tzdata.zi").write_text(listing)
        zoneinfo.reset_tzpath([str(folder)])
        return file

    def test_version_of_the_package_when_the_system_has_no_database(self) -> None:
        tzdata = pytest.importorskip("tzdata")
        zoneinfo.reset_tzpath([])
        assert tzdata_version("Europe/Berlin") == tzdata.IANA_VERSION

    def test_version_that_the_system_states_wins_for_the_zones_that_it_has(
        self, tmp_path: Path
    ) -> None:
        tzdata = pytest.importorskip("tzdata")
        self.system_with(tmp_path, listing="# version 1999z\nR d 1916 o - Jun 14 23s 1 S\n")
        assert tzdata_version("Europe/Berlin") == "1999z"
        assert tzdata_version("Asia/Tokyo") == tzdata.IANA_VERSION

    def test_a_system_that_states_no_version_is_named_by_the_digest_of_the_zone(
        self, tmp_path: Path
    ) -> None:
        file = self.system_with(tmp_path, listing=None)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert tzdata_version("Europe/Berlin") == f"sha256:{digest[:16]}"

    def test_unknown_zone_is_refused(self) -> None:
        with pytest.raises(BadArgument):
            tzdata_version("Mars/Olympus_Mons")
