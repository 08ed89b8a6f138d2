"""Values come back equal and of the same types, as documents that PostgreSQL can hold."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import json
import math
import subprocess
import sys
import threading
import types
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiary import errors
from apiary.authoring import values
from apiary.authoring.values import ValueProblem, codec_for

BERLIN = dt.timezone(dt.timedelta(hours=2))
MOMENT = dt.datetime(2026, 10, 25, 2, 30, 0, 123456)
AWARE = MOMENT.replace(tzinfo=BERLIN)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Pair(enum.Enum):
    ONE = (1, "a")
    TWO = (2, "b")


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    sku: str
    price: Decimal
    amount: int = 1


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    lines: list[Line]
    paid_at: dt.datetime | None = None
    tags: set[str] = dataclasses.field(default_factory=set)
    total: Decimal = dataclasses.field(init=False, default=Decimal(0))


@dataclasses.dataclass
class Positive:
    value: int

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise ValueError("value must be positive")


@dataclasses.dataclass
class Special(Positive):
    more: int = 0


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)
    parent_name: str | None = None


@dataclasses.dataclass
class Cat:
    name: str


@dataclasses.dataclass
class Dog:
    name: str


@dataclasses.dataclass
class Branch:
    inner: Branch | Leaf | None = None


@dataclasses.dataclass
class Leaf:
    inner: Branch | Leaf | None = None


@dataclasses.dataclass
class Config:
    lock: Any


@dataclasses.dataclass
class BadConfig:
    lock: threading.Lock


class Point(NamedTuple):
    x: float
    y: float = 0.0


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Address(pydantic.BaseModel):
    since: dt.date
    zone_time: dt.datetime


class Person(pydantic.BaseModel):
    id: uuid.UUID
    name: str = pydantic.Field(alias="fullName", min_length=1)
    colour: Colour
    balance: Decimal
    photo: bytes
    address: Address | None = None
    contact: int | str | dt.datetime
    wait: dt.timedelta
    ratio: float = math.inf


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int


class Circle(pydantic.BaseModel):
    kind: Literal["circle"]
    size: int


class Square(pydantic.BaseModel):
    kind: Literal["square"]
    size: int


class Names(pydantic.RootModel[list[str]]):
    pass


UserId = NewType("UserId", int)
Unordered = collections.namedtuple("Unordered", ["a", "b"])


def travel(annotation: Any, value: Any) -> Any:
    """Encode, go through JSON text as PostgreSQL would hold it, and decode."""
    codec = codec_for(annotation)
    text = values.dumps(codec.encode(value))
    assert "\\u0000" not in text
    text.encode("utf-8")
    return codec.decode(values.loads(text))


def same(left: Any, right: Any) -> bool:  # noqa: PLR0911 - one case each
    """Equal with equal types throughout; nan is the same as nan, 0.0 is not -0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return repr(left) == repr(right)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            any(same(k, other) and same(v, right[other]) for other in right)
            for k, v in left.items()
        )
    if isinstance(left, (set, frozenset)):
        return sorted(map(repr, left)) == sorted(map(repr, right))
    if isinstance(left, dt.datetime):
        return (left, left.fold) == (right, right.fold) and left.utcoffset() == right.utcoffset()
    if isinstance(left, Decimal):
        return str(left) == str(right)
    return bool(left == right)


TYPED = [
    (int, 2**53 + 1, 2**53 + 1),
    (int, -(2**80), -(2**80)),
    (float, 1.0, 1.0),
    (float, -0.0, -0.0),
    (float, math.nan, {"$float": "nan"}),
    (float, math.inf, {"$float": "inf"}),
    (float, -math.inf, {"$float": "-inf"}),
    (bool, True, True),
    (str, "grüße \U0001f41d", "grüße \U0001f41d"),
    (str, "a\0b\\", {"$str": "a\\0b\\\\"}),
    (None, None, None),
    (bytes, b"\x00\xff", "AP8="),
    (Decimal, Decimal("1.10"), "1.10"),
    (Decimal, Decimal("-Infinity"), "-Infinity"),
    (dt.date, dt.date(2026, 2, 28), "2026-02-28"),
    (dt.time, dt.time(1, 2, 3, 4), "01:02:03.000004"),
    (dt.datetime, MOMENT, "2026-10-25T02:30:00.123456"),
    (dt.datetime, MOMENT.replace(fold=1), "2026-10-25T02:30:00.123456[fold=1]"),
    (dt.datetime, AWARE, "2026-10-25T02:30:00.123456+02:00"),
    (dt.timedelta, dt.timedelta(days=-1, microseconds=1), {"$timedelta": -86_399_999_999}),
    (uuid.UUID, ID, "12345678-1234-5678-1234-567812345678"),
    (Colour, Colour.RED, "red"),
    (Level, Level.HIGH, 2),
    (Access, Access.READ | Access.WRITE, 3),
    (Pair, Pair.TWO, {"$tuple": [2, "b"]}),
    (list[Decimal], [Decimal("1.0")], ["1.0"]),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (tuple[int, ...], (1, 2), [1, 2]),
    (tuple[()], (), []),
    (tuple, (1, "a"), [1, "a"]),
    (set[int], {3, 1, 2}, [1, 2, 3]),
    (frozenset[str], frozenset("ba"), ["a", "b"]),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (dict[str, int], {"$a": 1, "b": 2}, {"$dict": [["$a", 1], ["b", 2]]}),
    (dict[str, int], {"a\0": 1}, {"$dict": [[{"$str": "a\\0"}, 1]]}),
    (dict[int, str], {1: "a"}, {"$dict": [[1, "a"]]}),
    (dict[uuid.UUID, int], {ID: 1}, {str(ID): 1}),
    (dict[tuple[int, int], str], {(1, 2): "a"}, {"$dict": [[[1, 2], "a"]]}),
    (Sequence[int], [1], [1]),
    (Sequence[int], (1,), {"$tuple": [1]}),
    (AbstractSet[int], frozenset({1}), {"$frozenset": [1]}),
    (Mapping[str, bytes], {"a": b""}, {"a": ""}),
    (Point, Point(1.0, 2.0), {"x": 1.0, "y": 2.0}),
    (Unordered, Unordered(1, (2,)), {"a": 1, "b": {"$tuple": [2]}}),
    (Movie, {"title": "Brazil"}, {"title": "Brazil"}),
    (Movie, {"title": "Brazil", "year": 1985}, {"title": "Brazil", "year": 1985}),
    (Line, Line(sku="a", price=Decimal(2)), {"sku": "a", "price": "2", "amount": 1}),
    (Literal["a", 1, None], 1, 1),
    (Literal[Colour.RED], Colour.RED, "red"),
    (Annotated[int, "metres"], 1, 1),
    (UserId, UserId(7), 7),
    (int | None, None, None),
    (int | str, 1, 1),
    (int | float, 1.0, 1.0),
    (str | uuid.UUID, ID, {"$uuid": str(ID)}),
    (str | uuid.UUID, str(ID), str(ID)),
    (dt.date | dt.datetime, AWARE, {"$datetime": "2026-10-25T02:30:00.123456+02:00"}),
    (Cat | Dog, Dog("Rex"), {"$type": "Dog", "value": {"name": "Rex"}}),
    (Cat | None, Cat("Tom"), {"name": "Tom"}),
    (Cat | list[Cat], Cat("Tom"), {"name": "Tom"}),
    (Colour | str, Colour.RED, {"$type": "Colour", "value": "red"}),
    (Colour | str, "red", "red"),
    (list[int] | list[str], ["a"], {"$type": "list[str]", "value": ["a"]}),
    (tuple[int, ...] | list[int], (1,), {"$tuple": [1]}),
    (Pair | tuple[int, str], Pair.ONE, {"$type": "Pair", "value": {"$tuple": [1, "a"]}}),
    (Cat | Any, Cat("Tom"), {"$type": "Cat", "value": {"name": "Tom"}}),
    (Literal[None, 1] | str, None, None),
    (dict[str, int] | Movie, {"a": 1}, {"a": 1}),
    (Names, Names(["a"]), ["a"]),
    (Open, Open.model_validate({"a": 1, "b": Decimal("1.0")}), {"a": 1, "b": {"$decimal": "1.0"}}),
]

DYNAMIC = [
    (1, 1),
    (1.0, 1.0),
    (math.nan, {"$float": "nan"}),
    (None, None),
    (Decimal("1.10"), {"$decimal": "1.10"}),
    (b"\xff", {"$bytes": "/w=="}),
    (ID, {"$uuid": str(ID)}),
    (dt.date(2026, 1, 2), {"$date": "2026-01-02"}),
    (dt.time(1, 2), {"$time": "01:02:00"}),
    (MOMENT, {"$datetime": "2026-10-25T02:30:00.123456"}),
    (AWARE, {"$datetime": "2026-10-25T02:30:00.123456+02:00"}),
    (dt.timedelta(seconds=1), {"$timedelta": 1_000_000}),
    ((1, [2]), {"$tuple": [1, [2]]}),
    ({2, 1}, {"$set": [1, 2]}),
    (frozenset({b"a"}), {"$frozenset": [{"$bytes": "YQ=="}]}),
    ({"a": 1}, {"a": 1}),
    ({1: "a"}, {"$dict": [[1, "a"]]}),
    ({"$a": 1}, {"$dict": [["$a", 1]]}),
    ({"a\0": 1}, {"$dict": [[{"$str": "a\\0"}, 1]]}),
    ("\0\\0", {"$str": "\\0\\\\0"}),
]


@pytest.mark.parametrize(("annotation", "value", "document"), TYPED)
def test_an_annotated_value_has_its_natural_document_and_comes_back_the_same(
    annotation: Any, value: Any, document: Any
) -> None:
    assert same(codec_for(annotation).encode(value), document)
    assert same(travel(annotation, value), value)


@pytest.mark.parametrize(("value", "document"), DYNAMIC)
def test_a_value_without_annotation_says_itself_what_it_is(value: Any, document: Any) -> None:
    assert same(codec_for(Any).encode(value), document)
    assert same(travel(Any, value), value)
    assert same(travel(object, value), value)


@pytest.mark.parametrize(("value", "document"), DYNAMIC)
def test_the_typed_codec_reads_the_self_describing_form(value: Any, document: Any) -> None:
    assert same(codec_for(type(value)).decode(document), value)


def test_nested_pydantic_models_come_back_equal() -> None:
    person = Person(
        id=ID,
        fullName="Ada",
        colour=Colour.BLUE,
        balance=Decimal("10.00"),
        photo=b"\xff\x00",
        address=Address(since=dt.date(2020, 1, 1), zone_time=AWARE),
        contact="2026-10-25T02:30:00",
        wait=dt.timedelta(microseconds=1),
    )
    again = travel(Person, person)
    assert again == person
    assert type(again.contact) is str
    assert type(again.address.since) is dt.date
    assert again.address.zone_time.utcoffset() == dt.timedelta(hours=2)
    assert str(again.balance) == "10.00"
    by_name = codec_for(Person).encode(person)
    by_name["name"] = by_name.pop("fullName")
    assert codec_for(Person).decode(by_name) == person


def test_a_pydantic_model_validates_what_comes_from_outside() -> None:
    document = codec_for(Person).encode(
        Person(
            id=ID,
            fullName="A",
            colour=Colour.RED,
            balance=Decimal(1),
            photo=b"",
            contact=1,
            wait=dt.timedelta(),
        )
    )
    document["fullName"] = ""
    with pytest.raises(ValueProblem, match="at least 1 character") as caught:
        codec_for(Person).decode(document, "args.person")
    assert caught.value.path == "args.person.fullName"


def test_nested_dataclasses_are_rebuilt_with_defaults_and_late_fields() -> None:
    order = Order(ID, [Line(sku="a", price=Decimal("1.10"))], AWARE, {"x"})
    order.total = Decimal("1.10")
    assert travel(Order, order) == order
    sparse = codec_for(Order).decode({"id": str(ID), "lines": []})
    assert sparse == Order(ID, [])


def test_a_recursive_type_is_carried() -> None:
    tree = Tree("root", [Tree("a", [Tree("b")]), Tree("c", parent_name="root")])
    assert travel(Tree, tree) == tree
    branch = Branch(Leaf(Branch()))
    assert travel(Branch | Leaf, branch) == branch


def test_the_deepest_union_of_records_fits_the_stack() -> None:
    branch = Branch()
    for level in range(values.MAX_DEPTH - 1):
        branch = Branch(branch) if level % 2 else Leaf(branch)  # type: ignore[assignment]
    document = codec_for(Branch | Leaf).encode(branch)
    again = codec_for(Branch | Leaf).decode(document)
    assert codec_for(Branch | Leaf).encode(again) == document


def test_nothing_but_the_standard_library_is_imported() -> None:
    code = (
        "import sys; import apiary.authoring.signature, apiary.authoring.failures;"
        "print([m for m in sys.modules if m.split('.')[0] not in sys.stdlib_module_names"
        " and m.split('.')[0] not in ('apiary', '__main__') and not m.startswith('_')])"
    )
    command = [sys.executable, "-S", "-c", code]
    environment = {"PYTHONPATH": str(Path(errors.__file__).parent.parent)}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_integers_beyond_the_decimal_conversion_limit_are_exact() -> None:
    huge = -(7**9999)
    assert travel(int, huge) == huge
    assert travel(Any, {"n": huge}) == {"n": huge}


def test_natural_json_from_outside_is_read_by_annotation() -> None:
    assert same(codec_for(float).decode(1), 1.0)
    assert same(codec_for(Decimal).decode(12), Decimal(12))
    assert codec_for(dict[int, str]).decode({"1": "a", "-2": "b"}) == {1: "a", -2: "b"}
    assert codec_for(dt.datetime).decode("2026-01-01T00:00:00Z").utcoffset() == dt.timedelta(0)
    assert codec_for(Point).decode([1, 2]) == Point(1.0, 2.0)
    assert codec_for(Cat | Order).decode({"name": "Tom"}) == Cat("Tom")
    assert codec_for(uuid.UUID | dt.date).decode("2026-01-02") == dt.date(2026, 1, 2)
    assert same(codec_for(float | str).decode(1), 1.0)
    square = {"kind": "square", "size": 1}
    assert codec_for(Circle | Square).decode(square) == Square(kind="square", size=1)


ENCODING_PROBLEMS = [
    (int, 1.0, "args.x", "expected int, got float 1.0"),
    (int, True, "args.x", "expected int, got bool True"),
    (float, False, "args.x", "expected float, got bool False"),
    (float, 10**400, "args.x", "too large"),
    (bool, 1, "args.x", "expected bool"),
    (str, b"a", "args.x", "expected str"),
    (str, "a\ud800", "args.x", "lone surrogate U\\+D800 at 1"),
    (Any, {"k\udc00": 1}, "args.x['k\\udc00']", "lone surrogate"),
    (dict[str, list[int]], {"a": [1, "b"]}, "args.x['a'][1]", "expected int, got str 'b'"),
    (Any, {"a": [threading.Lock()]}, "args.x['a'][0]", "cannot be stored"),
    (Any, {"f": len}, "args.x['f']", "cannot be stored"),
    (Any, [Colour.RED], "args.x[0]", "annotate"),
    (Any, (Cat("Tom"),), "args.x[0]", "annotate"),
    (Any, Point(1.0), "args.x", "annotate"),
    (Any, Open(a=1), "args.x", "annotate"),
    (Any, collections.OrderedDict(), "args.x", "subclass of dict"),
    (Config, Config(threading.Lock()), "args.x.lock", "lock cannot be stored"),
    (Order, Order(ID, [Line(sku=1, price=Decimal(1))]), "args.x.lines[0].sku", "expected str"),  # type: ignore[arg-type]
    (Positive, Special(1), "args.x", "subclass Special"),
    (dt.date, MOMENT, "args.x", "expected date, got datetime"),
    (tuple[int, int], (1,), "args.x", "expected 2 items"),
    (tuple[int, int], (1, "a"), "args.x[1]", "expected int"),
    (Movie, {"year": 1}, "args.x['title']", "is missing"),
    (Movie, {"title": "a", "x": 1}, "args.x", "no key str 'x'"),
    (Literal[1], True, "args.x", r"expected Literal\[1\]"),
    (int | str, 1.5, "args.x", r"expected int \| str"),
    (Sequence[str], "abc", "args.x", "expected Sequence"),
    (Open, Open.model_validate({"a": 1, "b": len}), "args.x.b", "cannot be stored"),
    (None, 1, "args.x", "expected None"),
]


@pytest.mark.parametrize(("annotation", "value", "path", "message"), ENCODING_PROBLEMS)
def test_what_cannot_be_encoded_is_named_with_its_path(
    annotation: Any, value: Any, path: str, message: str
) -> None:
    with pytest.raises(ValueProblem, match=message) as caught:
        codec_for(annotation).encode(value, "args.x")
    assert caught.value.path == path
    str(caught.value).encode("utf-8")


DECODING_PROBLEMS = [
    (int, 1.0, "result", "expected int"),
    (int, "1", "result", "expected int"),
    (int, {"$int": "zz"}, "result", "hexadecimal"),
    (float, True, "result", "expected float"),
    (float, {"$float": "1"}, "result", "'nan', 'inf' or '-inf'"),
    (float, math.inf, "result", "out of range"),
    (str, "\udfff", "result", "lone surrogate"),
    (str, {"$str": "\\x"}, "result", "unknown escape"),
    (bytes, "a", "result", "base64"),
    (Decimal, 1.1, "result", "as text"),
    (Decimal, "abc", "result", "expected Decimal, got str 'abc'"),
    (dt.datetime, "2026-01-01", "result", "time of day"),
    (dt.date, "soon", "result", "expected date"),
    (dt.timedelta, 5, "result", "microseconds"),
    (dt.timedelta, {"$timedelta": 10**30}, "result", "out of range"),
    (uuid.UUID, "x", "result", "expected UUID"),
    (Colour, "green", "result", 'one of "red", "blue"'),
    (Access, 8, "result", "8"),
    (list[int], {"a": 1}, "result", "expected list"),
    (Order, {"id": str(ID), "lines": [{"price": "1"}]}, "result.lines[0].sku", "is missing"),
    (Line, {"sku": "a", "price": "1", "amuont": 2}, "result", "did you mean 'amount'"),
    (Positive, {"value": -1}, "result", "must be positive"),
    (Any, {"$decimale": "1"}, "result", "did you mean '\\$decimal'"),
    (Any, {"$date": "2026-01-01", "x": 1}, "result", "starts with"),
    (Any, {"$tuple": 1}, "result", "expected a list"),
    (Any, {"$set": [[1]]}, "result", "cannot be in a set"),
    (Any, {"$dict": [[[1], 2]]}, "result", "cannot be a key"),
    (Any, {"$dict": [[1, 2], [1, 3]]}, "result", "same key twice"),
    (Any, {"$dict": [1]}, "result", "pairs"),
    (Any, [math.nan], "result[0]", "out of range"),
    (Cat | Dog, {"name": "Rex"}, "result", "say which"),
    (Cat | Dog, {"$type": "Bird", "value": {}}, "result", "one of Cat, Dog"),
    (Cat | Dog, {"nom": "Rex"}, "result", r"expected Cat \| Dog"),
    (uuid.UUID | dt.date, "soon", "result", r"expected UUID \| date"),
    (Open, {"a": 1, "b": {"$x": 1}}, "result.b", "unknown tag"),
]


@pytest.mark.parametrize(("annotation", "document", "path", "message"), DECODING_PROBLEMS)
def test_what_cannot_be_decoded_is_named_with_its_path(
    annotation: Any, document: Any, path: str, message: str
) -> None:
    with pytest.raises(ValueProblem, match=message) as caught:
        codec_for(annotation).decode(document, "result")
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("annotation", "path", "shown"),
    [
        (threading.Thread, "args.x", "Thread"),
        (Callable[[int], int], "args.x", "Callable"),
        (BadConfig, "args.x.lock", "lock"),
        (list[dict[str, object | Callable[..., int]]], "args.x[][]", "Callable"),
        ("Order", "args.x", "Order"),
        (complex, "args.x", "complex"),
        (typing.Iterator[int], "args.x", "Iterator"),
    ],
)
def test_a_type_that_cannot_travel_is_refused(annotation: Any, path: str, shown: str) -> None:
    with pytest.raises(errors.UnsupportedType) as caught:
        codec_for(annotation, "args.x")
    assert caught.value.path == path
    assert shown in caught.value.annotation


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def deep_tree(levels: int) -> Tree:
    tree = Tree("leaf")
    for _ in range(levels - 1):
        tree = Tree("node", [tree])
    return tree


def test_nesting_works_up_to_the_limit_and_is_refused_beyond() -> None:
    assert travel(Any, nested(values.MAX_DEPTH)) == nested(values.MAX_DEPTH)
    assert travel(Tree, deep_tree(values.MAX_DEPTH // 2)) == deep_tree(values.MAX_DEPTH // 2)
    for codec, value in ((codec_for(Any), nested(1000)), (codec_for(Tree), deep_tree(900))):
        with pytest.raises(ValueProblem, match="nested more than 100 levels"):
            codec.encode(value)
    with pytest.raises(ValueProblem, match="nested more than 100 levels"):
        codec_for(Any).decode(nested(1000))
    with pytest.raises(ValueProblem, match="nested more than 100 levels"):
        codec_for(Any).decode(values.loads("[" * 900 + "]" * 900))
    with pytest.raises(ValueProblem, match="nested too deeply"):
        values.loads("[" * 1_000_000)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueProblem, match="contains itself"):
        codec_for(Any).encode(loop)


def test_a_hostile_unmarked_union_is_refused_at_once() -> None:
    document: Any = None
    for _ in range(90):
        document = {"inner": document}
    with pytest.raises(ValueProblem, match="say which"):
        codec_for(Branch | Leaf).decode(document)


def test_canonical_text_tells_types_and_forgets_order() -> None:
    def text(value: Any) -> str:
        return values.canonical(codec_for(Any).encode(value))

    assert text({"v": 1}) != text({"v": 1.0})
    assert text({"a": 1, "b": 2}) == text({"b": 2, "a": 1})
    assert text({1: "x", 2: "y"}) == text({2: "y", 1: "x"})
    assert text([1, 2]) != text([2, 1])
    assert text({"aa", "b", "ccc"}) == text({"ccc", "b", "aa"})
    assert text(True) != text(1)
    assert values.digest(text({"v": 1})) != values.digest(text({"v": 2}))
    assert values.digest("") == "e3b0c44298fc1c149afbf4c8996fb924"


def test_text_that_is_no_json_is_refused() -> None:
    for text in ("NaN", "[1,", "-Infinity"):
        with pytest.raises(ValueProblem, match="is not JSON"):
            values.loads(text)
    with pytest.raises(ValueError, match="JSON compliant"):
        values.dumps(math.nan)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", "\0", "\\", "\\0", "$str", "$dict", "$", "a\0$"]
)
offsets = st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
moments = st.datetimes() | st.datetimes(timezones=offsets).map(lambda m: m.replace(fold=0))
floats = st.floats()
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    floats,
    texts,
    st.binary(max_size=8),
    st.decimals(allow_nan=False),
    st.dates(),
    st.times(),
    moments,
    st.timedeltas(),
    st.uuids(),
)
hashables = st.recursive(
    scalars.filter(lambda value: not isinstance(value, float) or not math.isnan(value)),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(texts, inner, max_size=4),
        st.dictionaries(hashables, inner, max_size=4),
        st.sets(hashables, max_size=4),
    ),
    max_leaves=12,
)


@given(anything)
def test_any_value_comes_back_the_same(value: Any) -> None:
    again = travel(Any, value)
    encode = codec_for(Any).encode
    assert type(again) is type(value)
    assert values.canonical(encode(again)) == values.canonical(encode(value))
    assert repr(sorted_sets(again)) == repr(sorted_sets(value))


def sorted_sets(value: Any) -> Any:
    """The value with sets as sorted lists of texts, so that its repr is its identity."""
    if isinstance(value, (set, frozenset)):
        return [type(value).__name__, *sorted(repr(sorted_sets(item)) for item in value)]
    if isinstance(value, (list, tuple)):
        return type(value)(sorted_sets(item) for item in value)
    if isinstance(value, dict):
        return [(sorted_sets(key), sorted_sets(item)) for key, item in value.items()]
    return value


LEAF_STRATEGIES: dict[Any, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    bool: st.booleans(),
    int: st.integers(),
    float: floats,
    str: texts,
    bytes: st.binary(max_size=8),
    Decimal: st.decimals(allow_nan=False),
    dt.date: st.dates(),
    dt.datetime: moments,
    dt.timedelta: st.timedeltas(),
    uuid.UUID: st.uuids(),
    Colour: st.sampled_from(Colour),
    Pair: st.sampled_from(Pair),
    Level: st.sampled_from(Level),
    Cat: st.builds(Cat, texts),
    Dog: st.builds(Dog, texts),
    Point: st.builds(Point, st.floats(allow_nan=False), st.floats(allow_nan=False)),
}
typed_leaves = st.sampled_from(list(LEAF_STRATEGIES)).map(lambda t: (t, LEAF_STRATEGIES[t]))


def container_of(pair: tuple[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    item, strategy = pair
    variadic: Any = types.GenericAlias(tuple, (item, ...))
    lists = st.lists(strategy, max_size=3)
    return st.sampled_from(
        [
            (types.GenericAlias(list, item), lists),
            (variadic, lists.map(tuple)),
            (types.GenericAlias(dict, (str, item)), st.dictionaries(texts, strategy, max_size=3)),
            (
                types.GenericAlias(dict, (int, item)),
                st.dictionaries(st.integers(), strategy, max_size=3),
            ),
        ]
    )


def union_of(pairs: list[tuple[Any, st.SearchStrategy[Any]]]) -> tuple[Any, Any]:
    members: Any = tuple(pair[0] for pair in pairs)
    return typing.Union[members], st.one_of(*(pair[1] for pair in pairs))  # noqa: UP007


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return inner.flatmap(container_of) | st.lists(inner, min_size=2, max_size=4).map(union_of)


typed = st.recursive(typed_leaves, containers, max_leaves=6)


@given(st.data())
def test_a_value_of_any_annotation_comes_back_the_same(data: st.DataObject) -> None:
    annotation, strategy = data.draw(typed)
    value = data.draw(strategy)
    assert repr(travel(annotation, value)) == repr(value)


@given(anything)
def test_documents_hold_nothing_that_jsonb_refuses(value: Any) -> None:
    text = values.dumps(codec_for(Any).encode(value))
    assert "\0" not in text
    assert "\\u0000" not in text
    json.loads(text, parse_constant=pytest.fail)
