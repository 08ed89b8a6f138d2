"""Taking table scripts apart."""

from __future__ import annotations

import pytest

from apiary.engine.scripts import split_script


def texts(script: str) -> list[str]:
    return [statement.text for statement in split_script(script)]


def test_statements_end_at_semicolons_and_empty_ones_are_left_out() -> None:
    assert texts("CREATE TABLE a ();;\n ; -- nothing\nCREATE TABLE b ()") == [
        "CREATE TABLE a ()",
        "CREATE TABLE b ()",
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'it''s; here'",
        r"SELECT E'a\';b'",
        'SELECT 1 AS "a;b""c"',
        "DO $x$ BEGIN PERFORM 1; END $x$",
        "SELECT $$;$$, $1",
        "SELECT 1 /* ; /* nested; */ ; */ + 1",
        "SELECT 1 -- ; not yet\n + 1",
        "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)",
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; END",
        "CREATE OR REPLACE PROCEDURE p() BEGIN ATOMIC SELECT 1; SELECT 2; END",
        "SELECT '; unclosed",
        "SELECT $q$; unclosed",
        "SELECT 1 /* ; unclosed",
    ],
)
def test_a_semicolon_inside_is_no_end(statement: str) -> None:
    assert texts(statement) == [statement]
    if "unclosed" not in statement:
        assert texts(f"{statement};SELECT 2") == [statement, "SELECT 2"]


def test_lines_are_those_of_the_script() -> None:
    script = "-- a comment\nCREATE TABLE a ();\n\n/* two\nlines */ SELECT\n  nothing;\n"
    first, second = split_script(script)
    assert (first.line, second.line) == (2, 5)
    assert second.line_of(second.text.index("nothing") + 1) == 6


@pytest.mark.parametrize(
    "command",
    ["commit", "BEGIN", "END;", "rollback to x", "/* x */ Abort", "start transaction",
     "savepoint s", "release s", "prepare transaction 'x'"],
)  # fmt: skip
def test_transaction_commands_are_told(command: str) -> None:
    assert [statement.is_transaction_command for statement in split_script(command)] == [True]


@pytest.mark.parametrize("command", ["prepare x as select 1", "CREATE TABLE commit ()", "END_x"])
def test_other_statements_are_none(command: str) -> None:
    assert not next(split_script(command)).is_transaction_command
