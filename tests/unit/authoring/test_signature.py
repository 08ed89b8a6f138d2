"""A signature encodes calls by name, refuses what does not fit, and describes itself."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import threading
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from apiary import errors
from apiary.authoring import values
from apiary.authoring.signature import Signature

if TYPE_CHECKING:
    from somewhere import Database  # type: ignore[import-not-found]


class Room(enum.Enum):
    SINGLE = "single"
    DOUBLE = "double"


@dataclasses.dataclass
class Config:
    lock: Any


def book(
    db: Database,
    hotel_id: int,
    nights: int = 1,
    *,
    room: Room = Room.SINGLE,
    guests: list[str] | None = None,
) -> dict[str, Decimal]:
    raise NotImplementedError


def everything(  # type: ignore[no-untyped-def]
    a: int,
    b: float,
    c: bool,
    d: str,
    e: bytes,
    f: Decimal,
    g: dt.date,
    h: dt.datetime,
    i: dt.timedelta,
    j: uuid.UUID,
    k: list[int],
    l: int | None,  # noqa: E741 - one letter each
    m: Annotated[str, "a name"],
    n: int | str,
    o,
) -> None: ...


def configured(cfg: Config) -> None: ...


def loosely(f, v):  # type: ignore[no-untyped-def]
    return f, v


def later(x: DefinedLater) -> DefinedLater:
    return x


def unresolved(x: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821


def locked(cfg: list[threading.Lock]) -> None: ...


def gives_lock() -> threading.Lock: ...  # type: ignore[empty-body]


def wrong_default(x: int = None) -> None: ...  # type: ignore[assignment] # noqa: RUF013


def odd_default(x: int = "1") -> None: ...  # type: ignore[assignment]


def many(*items: int) -> None: ...


def keywords(**options: int) -> None: ...


def positional(x: int, /) -> None: ...


def mutable(items: list[int] = []) -> None: ...  # noqa: B006 - the point of the test


signature = Signature.of(book, skip_first=True)


def text(*args: Any, **kwargs: Any) -> str:
    return values.canonical(signature.encode_arguments(args, kwargs))


def test_calls_that_mean_the_same_have_the_same_text() -> None:
    expected = '{"guests":null,"hotel_id":7,"nights":1,"room":"single"}'
    assert text(7) == expected
    assert text(7, 1) == expected
    assert text(nights=1, hotel_id=7, room=Room.SINGLE) == expected
    assert text(7, 2) != expected


def test_arguments_come_back_as_keywords_with_defaults() -> None:
    document = signature.encode_arguments((7,), {"guests": ["Ada"]})
    assert signature.decode_arguments(values.loads(values.dumps(document))) == {
        "hotel_id": 7,
        "nights": 1,
        "room": Room.SINGLE,
        "guests": ["Ada"],
    }


def test_a_document_from_outside_is_normalised() -> None:
    kwargs, document = signature.normalise({"room": "double", "hotel_id": 7})
    assert kwargs["room"] is Room.DOUBLE
    assert document == signature.encode_arguments((7,), {"room": Room.DOUBLE})


def test_a_mutable_default_is_fresh_for_each_call() -> None:
    fresh = Signature.of(mutable, skip_first=False)
    fresh.decode_arguments({})["items"].append(1)
    assert fresh.decode_arguments({}) == {"items": []}


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        ({}, "args.hotel_id", "is missing; expected int"),
        ({"hotel_id": "7"}, "args.hotel_id", "expected int, got str '7'"),
        ({"hotel_id": 7.0}, "args.hotel_id", "expected int, got float 7.0"),
        ({"hotel_id": 7, "hotel": 1}, "args.hotel", "did you mean 'hotel_id'"),
        ({"hotel_id": 7, "guests": ["a", 1]}, "args.guests[1]", "expected str"),
        ({"hotel_id": 7, "room": "suite"}, "args.room", 'one of "single", "double"'),
        ([7], "args", "an object by name, got list"),
    ],
)
def test_a_bad_document_is_refused_with_its_path(document: Any, path: str, message: str) -> None:
    with pytest.raises(errors.BadArgument, match=message) as caught:
        signature.decode_arguments(document)
    assert caught.value.path == path
    assert "book" in str(caught.value)
    assert errors.ApiaryError.from_json(caught.value.to_json()).path == path


@pytest.mark.parametrize(
    ("args", "kwargs", "path", "message"),
    [
        ((), {}, "args.hotel_id", "is missing"),
        ((1, 2, 3), {}, "args", "takes 2 positional arguments, got 3"),
        ((1,), {"hotel_id": 2}, "args.hotel_id", "given twice"),
        ((1,), {"nigths": 2}, "args.nigths", "did you mean 'nights'"),
        ((True,), {}, "args.hotel_id", "expected int, got bool"),
        ((1,), {"guests": [threading.Lock()]}, "args.guests[0]", "expected str, got lock"),
        ((1,), {"guests": ["\ud800"]}, "args.guests[0]", "lone surrogate"),
    ],
)
def test_a_bad_call_is_refused_with_its_path(
    args: tuple[Any, ...], kwargs: dict[str, Any], path: str, message: str
) -> None:
    with pytest.raises(errors.BadArgument, match=message) as caught:
        signature.encode_arguments(args, kwargs)
    assert caught.value.path == path


def test_a_lock_inside_a_record_is_named_by_its_path() -> None:
    with pytest.raises(errors.BadArgument, match="lock cannot be stored") as caught:
        Signature.of(configured, skip_first=False).encode_arguments((Config(threading.Lock()),), {})
    assert caught.value.path == "args.cfg.lock"


def test_one_and_one_point_zero_differ_without_annotation() -> None:
    loose = Signature.of(loosely, skip_first=False)
    texts = {values.canonical(loose.encode_arguments((0, v), {})) for v in (1, 1.0, True)}
    assert len(texts) == 3
    assert loose.encode_arguments((0,), {"v": {"v": 1}}) == loose.encode_arguments(
        (0, {"v": 1}), {}
    )


def test_results_are_encoded_and_refused_by_path() -> None:
    document = signature.encode_result({"price": Decimal("99.90")})
    assert document == {"price": "99.90"}
    assert signature.decode_result(document) == {"price": Decimal("99.90")}
    with pytest.raises(errors.BadResult, match="expected Decimal") as caught:
        signature.encode_result({"price": 99.9})
    assert caught.value.path == "result['price']"
    with pytest.raises(errors.BadResult) as caught:
        Signature.of(loosely, skip_first=False).encode_result(lambda: None)
    assert caught.value.path == "result"
    assert caught.value.reason == "BAD_RESULT"
    with pytest.raises(errors.BadResult, match="expected None"):
        Signature.of(configured, skip_first=False).encode_result(1)
    with pytest.raises(errors.BadResult) as caught:
        signature.decode_result({"price": "x"})
    assert caught.value.path == "result['price']"


def test_annotations_are_resolved_on_first_use() -> None:
    assert Signature.of(later, skip_first=False).encode_result(DefinedLater(1)) == {"x": 1}


@dataclasses.dataclass
class DefinedLater:
    x: int


@pytest.mark.parametrize(
    ("function", "path", "message"),
    [
        (unresolved, "args.x", "Nowhere"),
        (locked, "args.cfg[]", "lock cannot be stored"),
        (gives_lock, "result", "lock cannot be stored"),
    ],
)
def test_a_type_that_cannot_travel_is_refused_at_resolve(
    function: Any, path: str, message: str
) -> None:
    with pytest.raises(errors.UnsupportedType, match=message) as caught:
        Signature.of(function, skip_first=False).resolve()
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("function", "message"),
    [(wrong_default, r"int \| None"), (odd_default, "of the annotated type")],
)
def test_a_default_must_be_of_its_type(function: Any, message: str) -> None:
    with pytest.raises(errors.DeployError, match=message) as caught:
        Signature.of(function, skip_first=False).resolve()
    assert caught.value.path == "args.x"


@pytest.mark.parametrize(
    ("function", "shown"), [(many, r"'\*items'"), (keywords, r"'\*\*options'"), (positional, "'x'")]
)
def test_parameters_that_have_no_name_to_call_are_refused(function: Any, shown: str) -> None:
    with pytest.raises(errors.DeployError, match=shown):
        Signature.of(function, skip_first=False)


def test_a_function_without_its_first_parameter_is_refused() -> None:
    with pytest.raises(errors.DeployError, match="first parameter"):
        Signature.of(gives_lock, skip_first=True)


def test_it_describes_itself() -> None:
    assert signature.describe() == {
        "parameters": [
            {"name": "hotel_id", "type": "int", "required": True, "default": None},
            {"name": "nights", "type": "int", "required": False, "default": 1},
            {"name": "room", "type": "Room", "required": False, "default": "single"},
            {"name": "guests", "type": "list[str] | None", "required": False, "default": None},
        ],
        "returns": "dict[str, Decimal]",
    }
    assert Signature.of(loosely, skip_first=False).describe()["returns"] == "Any"


def test_its_sql_types() -> None:
    assert [sql for _, sql in Signature.of(everything, skip_first=False).sql_types()] == [
        "bigint",
        "double precision",
        "boolean",
        "text",
        "bytea",
        "numeric",
        "date",
        "timestamptz",
        "interval",
        "uuid",
        "jsonb",
        "bigint",
        "text",
        "jsonb",
        "jsonb",
    ]
