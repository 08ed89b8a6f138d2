"""Values through a function, through the database, and back: exactly the same, or refused."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from apiary import Database, function
from apiary.errors import BadArgument, StatementError
from apiary.testing import Platform

MakeApp = Callable[..., Platform]


class Mood(Enum):
    GLAD = "glad"
    SAD = "sad"


@dataclass(frozen=True)
class Point:
    x: int
    label: str | None = None


BERLIN = timezone(timedelta(hours=2, minutes=30))
UUID_1 = UUID(int=1)
MOMENT = datetime(2026, 7, 1, 1, 2, 3, 4, BERLIN)

# (annotation, value); under Any as well, unless a class is needed to rebuild it.
VALUES: list[tuple[str, Any]] = [
    ("datetime", MOMENT),
    ("datetime", datetime(2026, 7, 1, 1, 2, 3, 4)),
    ("date", date(1, 1, 1)),
    ("time", time(1, 2, 3, 4)),
    ("timedelta", timedelta(days=-1, microseconds=1)),
    ("Decimal", Decimal("1.10")),
    ("Decimal", Decimal("NaN")),
    ("UUID", UUID_1),
    ("bytes", b"\x00\xff"),
    ("float", math.nan),
    ("float", -math.inf),
    ("float", 0.1),
    ("float", -0.0),
    ("int", 2**53 + 1),
    ("int", -(2**80)),
    ("int", 10**5000),
    ("bool", True),
    ("None", None),
    ("str", "a\0b\\é🐝"),
    ("str", '"$int"'),
    ("list[int]", [1, 2]),
    ("list[Any]", [1, 1.0, "1", None, True]),
    ("dict[str, Any]", {"$x": {"a\0": b"1"}, "b": [Decimal(1)]}),
    ("dict[int, str]", {1: "a", -2: "b"}),
    ("tuple[int, str]", (1, "a")),
    ("set[int]", {1, 2}),
    ("frozenset[str]", frozenset({"a"})),
]
RECORDS: list[tuple[str, Any]] = [
    ("Mood", Mood.SAD),
    ("Point", Point(1, "a")),
    ("Point | None", None),
    ("list[Point]", [Point(1), Point(2, "b")]),
    ("int | str", "1"),
]
# (column type, value that is written, value that is read; the same unless given)
COLUMNS: list[tuple[str, Any, Any]] = [
    ("bigint", 2**63 - 1, ...),
    ("smallint", -1, ...),
    ("double precision", 0.1, ...),
    ("double precision", math.nan, ...),
    ("double precision", -math.inf, ...),
    ("numeric", Decimal("1.10"), ...),
    ("numeric", Decimal("NaN"), ...),
    ("numeric", 10**40, Decimal(10**40)),
    ("text", "é'\\🐝", ...),
    ("text", "", ...),
    ("boolean", False, ...),
    ("bytea", b"\x00\xff'\\", ...),
    ("bytea", b"", ...),
    ("date", date(2026, 2, 28), ...),
    ("date", date(1, 1, 1), ...),
    ("time", time(1, 2, 3, 4), ...),
    ("timetz", time(1, 2, 3, 4, BERLIN), ...),
    ("timestamp", datetime(2026, 1, 2, 3, 4, 5, 6), ...),
    ("timestamptz", MOMENT, ...),
    ("timestamptz", datetime(2026, 1, 2, tzinfo=UTC), ...),
    ("interval", timedelta(days=-1, seconds=5, microseconds=7), ...),
    ("interval", timedelta(0), ...),
    ("interval", timedelta(days=400, hours=30), ...),
    ("uuid", UUID_1, ...),
    ("jsonb", {"a": [1, 2.5, None, "é\0"], "d": Decimal("1.10"), "b": b"x"}, ...),
    ("json", [1, {"$x": MOMENT}], ...),
    ("jsonb", "text", ...),
    ("jsonb", math.nan, ...),
    ("val.mood", "sad", ...),
    ("val.mood", Mood.SAD, "sad"),
    ("val.birthday", date(2000, 1, 1), ...),
    ("bigint[]", [1, None, 3], ...),
    ("bigint[]", [], ...),
    ("bigint[]", [[1, 2], [3, 4]], ...),
    ("text[]", ["a", 'b"\\,{}', None, "NULL"], ...),
    ("numeric[]", [Decimal("1.10")], ...),
    ("double precision[]", [math.inf], ...),
    ("bytea[]", [b"\x00", b""], ...),
    ("date[]", [date(2026, 1, 1), None], ...),
    ("timestamptz[]", [MOMENT], ...),
    ("interval[]", [timedelta(hours=1)], ...),
    ("uuid[]", [UUID_1], ...),
    ("boolean[]", [True, False], ...),
]


def _code() -> str:
    lines = [
        "from dataclasses import dataclass",
        "from datetime import date, datetime, time, timedelta",
        "from decimal import Decimal",
        "from enum import Enum",
        "from typing import Any",
        "from uuid import UUID",
        "from apiary import Database, function",
        "class Mood(Enum):\n    GLAD = 'glad'\n    SAD = 'sad'",
        "@dataclass(frozen=True)\nclass Point:\n    x: int\n    label: str | None = None",
        "@function\ndef same_any(db: Database, v: Any) -> Any:\n    return v",
        "@function\ndef keyed(db: Database, args: dict[str, Any]) -> None: ...",
    ]
    for number, (annotation, _) in enumerate(VALUES + RECORDS):
        lines.append(
            f"@function\ndef same_{number}(db: Database, v: {annotation}) -> {annotation}:\n"
            "    return v"
        )
    for number, (column_type, _, _) in enumerate(COLUMNS):
        lines.append(
            f"@function\ndef column_{number}(db: Database, v: Any) -> Any:\n"
            f"    db.execute('INSERT INTO val.c{number} (v) VALUES ($1)', v)\n"
            f"    row = db.one('SELECT v FROM val.c{number} ORDER BY n DESC LIMIT 1')\n"
            f"    passed = db.value('SELECT $1::{column_type}', v)\n"
            "    assert repr(row.v) == repr(passed), (row.v, passed)\n"
            "    return row.v"
        )
    lines.append(
        "@function\ndef read(db: Database, what: str) -> Any:\n"
        "    return db.value('SELECT ' + what)"
    )
    lines.append(
        "@function\ndef write(db: Database, kind: str, v: Any) -> Any:\n"
        "    return db.value(f'SELECT $1::{kind}', v)"
    )
    return "\n\n".join(lines) + "\n"


def _tables() -> str:
    return (
        "CREATE TYPE val.mood AS ENUM ('glad', 'sad');\n"
        "CREATE DOMAIN val.birthday AS date CHECK (value < '2026-01-01');\n"
    ) + "\n".join(
        f"CREATE TABLE val.c{number} (n int GENERATED ALWAYS AS IDENTITY, v {column_type});"
        for number, (column_type, _, _) in enumerate(COLUMNS)
    )


@pytest.fixture(scope="module")
def values(make_shared_app: MakeApp) -> Platform:
    return make_shared_app(
        {"functions/val/__init__.py": _code(), "functions/val/sql/001_tables.sql": _tables()}
    )


def caller(name: str, annotation: Any) -> Any:
    """The client's view of a function: its name and its types."""

    def body(db: Database, v: Any) -> Any: ...

    body.__annotations__ = {"v": annotation, "return": annotation}
    made: Any = function(body)
    made.name = f"val.{name}"
    return made


def same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    assert found == expected or repr(found) == repr(expected)


@pytest.mark.parametrize("number", range(len(VALUES + RECORDS)))
def test_a_value_comes_back_as_it_was(values: Platform, number: int) -> None:
    annotation, value = (VALUES + RECORDS)[number]
    resolved = eval(annotation, globals())
    same(values.call(caller(f"same_{number}", resolved), value), value)
    if number < len(VALUES):
        same(values.call(caller("same_any", Any), value), value)
        same(values.call(caller("same_any", Any), {"in": [value]}), {"in": [value]})
    assert values.query("SELECT count(input), count(output::text::jsonb) FROM apiary.operation")


@pytest.mark.parametrize("number", range(len(COLUMNS)))
def test_a_value_comes_back_from_its_column(values: Platform, number: int) -> None:
    _, written, expected = COLUMNS[number]
    expected = written if expected is ... else expected
    call = caller(f"column_{number}", Any)
    found = values.call(call, written.value if isinstance(written, Enum) else written)
    # Moments are equal when they are the same instant: PostgreSQL keeps no offset.
    assert found == expected or repr(found) == repr(expected)
    assert type(found) is type(expected)
    assert values.call(call, None) is None


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"cfg": {"lock": threading.Lock()}}, "args.v['cfg']['lock']"),
        ([lambda: 1], "args.v[0]"),
        ({"a": ["x", "\ud800"]}, "args.v['a'][1]"),
        ({"when": Mood.SAD}, "args.v['when']"),
    ],
)
def test_what_cannot_travel_is_refused_with_its_path(
    values: Platform, value: Any, path: str
) -> None:
    before = values.query("SELECT count(*) FROM apiary.operation")
    with pytest.raises(BadArgument) as caught:
        values.call(caller("same_any", Any), value)
    assert caught.value.path == path
    assert values.query("SELECT count(*) FROM apiary.operation") == before


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("timestamptz", datetime(2026, 1, 1), "has no zone"),
        ("timestamp", MOMENT, "has a zone"),
        ("date", datetime(2026, 1, 1, 5), "has a time of day"),
        ("time", time(1, tzinfo=UTC), "has a zone"),
        ("text", "a\0b", r"U\+0000"),
        ("text[]", ["a", "b\0"], r"U\+0000"),
        ("bigint", 2**63, "out of range"),
        ("bigint", 1.5, "invalid input syntax"),
    ],
)
def test_a_parameter_that_would_lose_something_is_refused(
    values: Platform, kind: str, value: Any, message: str
) -> None:
    with pytest.raises((BadArgument, StatementError), match=message):
        values.call(caller_write(), kind, value)


def caller_write() -> Any:
    def body(db: Database, kind: str, v: Any) -> Any: ...

    made: Any = function(body)
    made.name = "val.write"
    return made


@pytest.mark.parametrize(
    "what",
    ["'infinity'::timestamptz", "'-infinity'::date", "'0044-03-15 BC'::date", "'24:00'::time",
     "'1 month'::interval", """'{"$ref": 1, "b": 2}'::jsonb"""],
)  # fmt: skip
def test_a_column_without_a_python_value_says_so(values: Platform, what: str) -> None:
    error = values.invoke("val.read", what=what).error
    assert error is not None
    assert error["type"] == "BadResult"
    assert "select it as" in error["platform"]["hint"]


def test_reads_of_every_value_can_be_asked_for_in_sql(values: Platform) -> None:
    values.call(caller("same_any", Any), "a\0b")
    values.call(caller_write(), "jsonb", {"k": "a\0b", "n": math.nan, "t": [1, None]})
    rows = values.query("SELECT parameters, after FROM provenance.data_event WHERE operation = 'R'")
    assert len(rows) > len(COLUMNS)
