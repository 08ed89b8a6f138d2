"""User code's exceptions are recorded whatever they do, and rebuilt without their constructor."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import threading
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiary import errors
from apiary.authoring.failures import MAX_STACK_BYTES, encode_exception, rebuild_exception


class E(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class SoldOut(errors.ApplicationError):
    code = "SOLD_OUT"

    def __init__(self, *, hotel: str, price: Decimal, at: dt.datetime | None = None) -> None:
        super().__init__(f"{hotel} is sold out")
        self.hotel = hotel
        self.price = price
        self.at = at


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    @property
    def code(self) -> str:
        raise SystemExit(3)


class NoAttributes(Exception):
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise ValueError("hidden")

    @property
    def args(self) -> Any:  # type: ignore[override]
        raise ValueError("hidden")


class ExitingText(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class NotText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value] # noqa: PLE0307


class TwoArguments(Exception):
    def __new__(cls, first: Any, second: Any) -> TwoArguments:
        return super().__new__(cls, first, second)


def recorded(exc: BaseException) -> dict[str, Any]:
    """Raise it, encode it, and take the record through JSON text."""
    try:
        raise exc
    except BaseException as caught:  # noqa: BLE001 - whatever it is
        document = json.loads(json.dumps(encode_exception(caught), allow_nan=False))
    text = json.dumps(document, ensure_ascii=False)
    assert "\\u0000" not in text
    text.encode("utf-8")
    return document  # type: ignore[no-any-return]


def find(kind: type[BaseException]) -> Any:
    def find_class(module: str, name: str) -> type | None:
        assert (module, name) == (kind.__module__, kind.__name__)
        return kind

    return find_class


def nobody(module: str, name: str) -> None:
    return None


def test_a_keyword_only_constructor_is_no_obstacle() -> None:
    document = recorded(E(code=7))
    assert document["type"] == "E"
    assert document["message"] == "code 7"
    assert document["details"] == {"code": 7}
    assert document["code"] is None
    assert document["declared"] is False
    assert "raise exc" in document["stack"]

    here = rebuild_exception(document, find(E))
    assert type(here) is E
    assert str(here) == "code 7"
    assert here.code == 7

    elsewhere = rebuild_exception(document, nobody)
    assert type(elsewhere) is errors.FunctionError
    assert elsewhere.message == "code 7"
    assert elsewhere.type == "E"
    assert elsewhere.details == {"code": 7}
    assert errors.ApiaryError.from_json(elsewhere.to_json()).details == {"code": 7}


def test_a_declared_error_keeps_its_code_and_the_types_of_its_attributes() -> None:
    at = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)  # noqa: UP017 - as on Python 3.9
    document = recorded(SoldOut(hotel="Ritz", price=Decimal("99.90"), at=at))
    assert document["declared"] is True
    assert document["code"] == "SOLD_OUT"
    assert document["details"]["price"] == {"$decimal": "99.90"}
    here = rebuild_exception(document, find(SoldOut))
    assert isinstance(here, SoldOut)
    assert (here.hotel, here.price, here.at) == ("Ritz", Decimal("99.90"), at)
    elsewhere = rebuild_exception(document, nobody)
    assert isinstance(elsewhere, errors.FunctionError)
    assert (elsewhere.code, elsewhere.declared) == ("SOLD_OUT", True)


class Full(errors.ApplicationError):
    code = "FULL"


def test_keywords_of_a_declared_error_are_its_details() -> None:
    error = Full("no room", hotel="Ritz", rooms=0)
    assert (error.args, vars(error)) == (("no room",), {"hotel": "Ritz", "rooms": 0})
    document = recorded(error)
    assert (document["code"], document["details"]) == ("FULL", {"hotel": "Ritz", "rooms": 0})
    for again in (rebuild_exception(document, find(Full)), pickle.loads(pickle.dumps(error))):
        assert (type(again), again.args, vars(again)) == (Full, error.args, vars(error))


def test_an_attribute_that_cannot_be_stored_is_dropped_with_a_note() -> None:
    exc = ValueError("broken")
    exc.lock = threading.Lock()  # type: ignore[attr-defined]
    exc.row = {"id": 1}  # type: ignore[attr-defined]
    document = recorded(exc)
    assert document["type"] == "ValueError"
    assert document["message"] == "broken"
    assert document["details"] == {"row": {"id": 1}}
    assert document["notes"] == ["dropped details.lock: lock cannot be stored: it is not data"]


@pytest.mark.parametrize(
    "exc",
    [
        KeyError("x"),
        ValueError("a", 1),
        OSError(2, "No such file", "name.txt"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
        StopIteration(5),
        ZeroDivisionError(),
        errors.NotFound("no run", hint="look", kind="run"),
        TwoArguments(1, 2),
    ],
)
def test_an_exception_of_a_known_class_reads_the_same(exc: Exception) -> None:
    again = rebuild_exception(recorded(exc), find(type(exc)))
    assert type(again) is type(exc)
    assert str(again) == str(exc)
    assert again.args == exc.args
    assert vars(again) == vars(exc)


def test_arguments_that_cannot_be_stored_leave_the_message() -> None:
    document = recorded(ValueError("bad", len))
    assert document["args"] is None
    assert "args[1]" in document["notes"][0]
    assert rebuild_exception(document, find(ValueError)).args == (document["message"],)


def test_an_exception_that_fights_back_is_recorded() -> None:
    document = recorded(Hostile())
    assert (document["type"], document["message"], document["code"]) == ("Hostile", "", None)
    assert "__str__ raised RuntimeError" in document["notes"][0]
    assert "SystemExit" in document["notes"][1]
    assert recorded(NoAttributes())["details"] == {}
    assert recorded(ExitingText())["message"] == ""
    assert "TypeError" in recorded(NotText())["notes"][0]


def test_what_text_cannot_hold_is_made_visible() -> None:
    document = recorded(ValueError("a\0b\ud800c"))
    assert document["message"] == "a\\x00b\\ud800c"
    assert rebuild_exception(document, find(ValueError)).args == ("a\\x00b\\ud800c",)


def test_stack_and_message_are_bounded() -> None:
    def dig(depth: int) -> None:
        if depth == 0:
            raise ValueError("é" * 50_000)
        if depth % 2:
            dig(depth - 1)
        else:
            dig(depth - 1)

    with pytest.raises(ValueError, match="é") as caught:
        dig(200)
    document = encode_exception(caught.value)
    assert len(document["stack"].encode()) <= MAX_STACK_BYTES
    assert document["stack"].endswith("é\n")
    assert len(document["message"]) < 20_000
    assert any("message is cut" in note for note in document["notes"])


def test_what_is_no_exception_class_becomes_a_function_error() -> None:
    document = recorded(KeyboardInterrupt("stop"))
    assert isinstance(rebuild_exception(document, find(KeyboardInterrupt)), errors.FunctionError)
    group = ExceptionGroup("several", [ValueError("one")])
    rebuilt = rebuild_exception(recorded(group), find(ExceptionGroup))
    assert isinstance(rebuilt, errors.FunctionError)
    assert rebuilt.message == "several (1 sub-exception)"
    assert isinstance(
        rebuild_exception(recorded(E(code=1)), lambda module, name: dict), errors.FunctionError
    )


@given(st.text(), st.dictionaries(st.text(), st.text() | st.floats() | st.binary(), max_size=4))
def test_any_text_and_attributes_can_be_recorded(message: str, attributes: dict[str, Any]) -> None:
    exc = ValueError(message)
    vars(exc).update(attributes)
    document = recorded(exc)
    again = rebuild_exception(document, find(ValueError))
    assert set(vars(again)) == set(document["details"])
    assert len(document["details"]) + len(document["notes"]) >= len(attributes)
