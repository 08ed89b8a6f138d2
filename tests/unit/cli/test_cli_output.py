"""Results on standard output."""

from __future__ import annotations

import json

import pytest

from apiary.cli.output import RowFormat, note, write_fields, write_rows, write_table

ROWS = [(1, 'a "quoted", [red]text[/red]', None), (2, "two\nlines", {"k": [1.5]})]
COLUMNS = ("id", "text", "extra")


def test_json_and_jsonl_keep_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert write_rows(RowFormat.JSON, COLUMNS, ROWS) == 2
    whole = json.loads(capsys.readouterr().out)
    assert write_rows(RowFormat.JSONL, COLUMNS, ROWS) == 2
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == whole
    assert whole[0] == {"id": 1, "text": 'a "quoted", [red]text[/red]', "extra": None}


def test_csv_quotes_what_needs_it(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(RowFormat.CSV, COLUMNS, ROWS)
    assert capsys.readouterr().out == (
        'id,text,extra\n1,"a ""quoted"", [red]text[/red]",\n2,"two\nlines","{""k"": [1.5]}"\n'
    )


def test_a_table_cuts_nothing_when_no_terminal_shows_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_table(("a", "b"), [("x" * 300, "[bold]y[/bold]")])
    out = capsys.readouterr().out
    assert "x" * 300 in out
    assert "[bold]y[/bold]" in out


def test_fields_without_a_value_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    write_fields({"name": "f", "log": "one\ntwo", "error": None, "zero": 0})
    assert capsys.readouterr().out == "name   f\nlog    one\n       two\nzero   0\n"


def test_notes_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    note("working")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "working\n")
