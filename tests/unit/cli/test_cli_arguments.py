"""Arguments on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from apiary.cli.arguments import read_arguments, text_for_another_type
from apiary.errors import BadArgument, UsageError


def test_text_stays_text_and_json_is_read() -> None:
    arguments = read_arguments(["hotel_id:=3", "day=2026-07-01", "note=a=b:=c", "tags:=[1, null]"])
    assert arguments.document == {
        "hotel_id": 3,
        "day": "2026-07-01",
        "note": "a=b:=c",
        "tags": [1, None],
    }
    assert arguments.texts == {"day", "note"}


def test_a_document_may_come_as_text_or_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "arguments.json"
    file.write_text('{"hotel_id": 3}')
    assert read_arguments([], json_text='{"hotel_id": 3}') == read_arguments([], file=file)


@pytest.mark.parametrize("pair", ["hotel_id", "=3", "3=x", "a-b=1", "", "n:=", "n:={"])
def test_what_is_no_argument_is_refused(pair: str) -> None:
    with pytest.raises(BadArgument):
        read_arguments([pair])


@pytest.mark.parametrize("text", ["[1]", "3", "null", "{", ""])
def test_a_document_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(BadArgument):
        read_arguments([], json_text=text)


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(BadArgument, match="hotel_id is given twice"):
        read_arguments(["hotel_id:=3", "hotel_id=3"])


def test_two_forms_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match="two ways"):
        read_arguments(["a=1"], json_text="{}")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(BadArgument, match=r"nowhere\.json"):
        read_arguments([], file=Path("nowhere.json"))


SIGNATURE = {
    "parameters": [{"name": "hotel_id", "type": "int"}, {"name": "customer", "type": "str"}]
}


def test_text_where_a_number_is_wanted_says_what_to_write() -> None:
    arguments = read_arguments(["hotel_id=3", "customer=ada"])
    said = text_for_another_type(arguments, SIGNATURE, "args.hotel_id")
    assert said is not None
    assert "hotel_id:=3" in said


@pytest.mark.parametrize("path", ["args.customer", "args.unknown", "args"])
def test_nothing_is_said_where_text_is_not_the_problem(path: str) -> None:
    arguments = read_arguments(["hotel_id:=3", "customer=ada"])
    assert text_for_another_type(arguments, SIGNATURE, path) is None
