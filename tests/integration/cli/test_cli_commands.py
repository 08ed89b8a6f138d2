"""The commands against a real server: what they print, and the exit code table."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from .conftest import Dev, apiary, result

SOURCE = '''

@function
def fail(db: Database) -> None:
    """Break."""
    print("about to break")
    raise ValueError("it broke")


@function(timeout_s=0.2)
def spin(db: Database) -> None:
    """Never end."""
    while True:
        pass
'''


@pytest.fixture(scope="module")
def home(served: Dev) -> Path:
    """The folder of the served guestbook, with a function that fails and one that never ends."""
    source = served.folder / "functions/guestbook/__init__.py"
    if "def fail" not in source.read_text():
        source.write_text(source.read_text() + SOURCE)
        assert apiary(served.folder, "deploy").returncode == 0
    return served.folder


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("call", "guestbook.latest"), 0),
        (("call", "guestbook.fail"), 1),
        (("call", "guestbook.sign", "visitor=ada"), 2),
        (("call", "guestbook.sign", "visitor=ada", "message=x", "extra=y"), 2),
        (("call", "guestbook.latest", "limit=many"), 2),
        (("call", "guestbook.latest", "--json", "[1]"), 2),
        (("call", "guestbook.latest", "--id", ""), 2),
        (("call",), 2),
        (("no-such-command",), 2),
        (("sql", "SELECT FROM WHERE"), 2),
        (("call", "guestbook.nothing"), 3),
        (("function", "describe", "guestbook.nothing"), 3),
        (("run", "get", "no-such-run"), 3),
        (("call", "guestbook.latest", "--server", "127.0.0.1:1"), 69),
        (("call", "guestbook.spin"), 124),
        (("call", "guestbook.latest", "--tls-ca", "nowhere.pem"), 78),
        (("serve", "--listen", "0.0.0.0:0"), 78),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else str(each),
)
def test_each_outcome_has_its_exit_code(home: Path, command: tuple[str, ...], code: int) -> None:
    done = apiary(home, *command)
    assert done.returncode == code, done.stderr
    assert 'Traceback (most recent call last):\n  File "/' not in done.stderr
    if code:
        assert done.stdout == ""
        assert done.stderr


def test_the_same_id_returns_the_record_and_another_call_under_it_is_a_conflict(
    home: Path,
) -> None:
    command = ("call", "guestbook.sign", "visitor=ada", "message=once", "--output", "json")
    first = result(home, *command, "--id", "signed-1")
    again = result(home, *command, "--id", "signed-1")
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert first["output"] == again["output"]
    other = apiary(
        home, "call", "guestbook.sign", "visitor=bob", "message=once", "--id", "signed-1"
    )
    assert other.returncode == 4


def test_text_for_a_number_says_what_to_write(home: Path) -> None:
    done = apiary(home, "call", "guestbook.latest", "limit=3")
    assert done.returncode == 2
    assert "limit:=3" in done.stderr


def test_arguments_come_from_a_file_and_the_result_alone_goes_to_standard_output(
    home: Path,
) -> None:
    (home / "arguments.json").write_text('{"visitor": "ada", "message": "from a file"}')
    done = apiary(home, "call", "guestbook.sign", "--file", "arguments.json")
    assert done.returncode == 0
    assert isinstance(json.loads(done.stdout), int)
    assert done.stderr.startswith("run ")


def test_an_error_of_a_function_is_shown_with_its_place(home: Path) -> None:
    done = apiary(home, "call", "guestbook.fail", "--id", "broken-1")
    assert done.returncode == 1
    assert "ValueError: it broke" in done.stderr
    assert "functions/guestbook/__init__.py" in done.stderr


def test_a_run_is_shown_with_what_it_printed(home: Path) -> None:
    apiary(home, "call", "guestbook.fail", "--id", "broken-2")
    run = result(home, "run", "get", "broken-2", "--output", "json")
    assert run["status"] == "FAILED"
    assert run["error"]["type"] == "ValueError"
    shown = apiary(home, "run", "get", "broken-2").stdout
    assert "ValueError: it broke" in shown
    assert "about to break" in shown
    assert "about to break" in apiary(home, "function", "logs", "guestbook.fail").stdout


def test_runs_are_listed_newest_first_by_filters(home: Path) -> None:
    for number in range(3):
        result(home, "call", "guestbook.latest", "--id", f"listed-{number}")
    listed = result(home, "run", "list", "--prefix", "listed-", "--output", "json")
    assert [run["run_id"] for run in listed] == ["listed-2", "listed-1", "listed-0"]
    command = ("run", "list", "--prefix", "listed-", "--output", "json")
    assert len(result(home, *command, "--limit", "2")) == 2
    assert result(home, *command, "--status", "failed") == []
    assert result(home, *command, "--until", "2001-01-01") == []
    assert apiary(home, *command, "--since", "yesterday").returncode == 2


def test_rows_come_as_table_json_jsonl_and_csv(home: Path) -> None:
    statement = "SELECT 1 AS n, 'a,b' AS t, NULL AS x, 1.50 AS d UNION ALL SELECT 2, 'c', NULL, 0"
    whole = result(home, "sql", statement, "--output", "json")
    assert [row["n"] for row in whole] == [1, 2]
    assert whole[0]["t"] == "a,b"
    assert whole[0]["d"] == "1.50"
    lines = apiary(home, "sql", statement, "--output", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == whole
    text = apiary(home, "sql", statement, "--output", "csv").stdout
    assert next(iter(csv.DictReader(io.StringIO(text))))["d"] == "1.50"
    table = apiary(home, "sql", statement)
    assert "a,b" in table.stdout
    assert "2 rows" in table.stderr


def test_sql_cannot_write(home: Path) -> None:
    done = apiary(home, "sql", "DELETE FROM guestbook.entry")
    assert done.returncode in {1, 5}
    assert done.stderr


def test_functions_are_listed_and_described(home: Path) -> None:
    listed = result(home, "function", "list", "--output", "json")
    assert {"guestbook.latest", "guestbook.sign"} <= {each["name"] for each in listed}
    table = apiary(home, "function", "list").stdout
    assert "guestbook.sign" in table
    described = apiary(home, "function", "describe", "guestbook.latest").stdout
    assert "limit: int = 10" in described
    assert "guestbook.entry" in described


def test_a_rollback_lets_the_version_before_serve(home: Path) -> None:
    source = home / "functions/guestbook/__init__.py"
    before = source.read_text()
    first = result(home, "deploy", "--output", "json")
    assert first["changed"] is False
    source.write_text(before + "\nVERSION = 2\n")
    try:
        second = result(home, "deploy", "--output", "json")
        assert second["changed"] is True
        back = result(home, "function", "rollback", "--output", "json")
        assert back["deployment"] == first["deployment"]
    finally:
        source.write_text(before)


def test_a_check_changes_nothing(home: Path) -> None:
    source = home / "functions/guestbook/__init__.py"
    before = source.read_text()
    serving = result(home, "function", "list", "--output", "json")
    source.write_text(before + "\nVERSION = 3\n")
    try:
        checked = result(home, "deploy", "--check", "--output", "json")
        assert checked["checked_only"] is True
        assert checked["changed"] is True
    finally:
        source.write_text(before)
    assert result(home, "function", "list", "--output", "json") == serving


def test_an_edited_script_is_refused(home: Path) -> None:
    script = home / "functions/guestbook/sql/001_entry.sql"
    before = script.read_text()
    script.write_text(before + "\n-- edited\n")
    try:
        done = apiary(home, "deploy")
        assert done.returncode == 4
        assert "001_entry.sql" in done.stderr
    finally:
        script.write_text(before)


def test_a_deploy_needs_no_server_where_the_database_is_named(served: Dev, home: Path) -> None:
    done = result(
        home, "deploy", "--database-url", served.record.database_url, "--output", "json",
        "--check",
    )  # fmt: skip
    assert done["application"] == "guestbook"
    refused = apiary(home, "deploy", "--database-url", served.record.reader_url)
    assert refused.returncode == 5, refused.stderr
