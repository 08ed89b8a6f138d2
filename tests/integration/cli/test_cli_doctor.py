"""`apiary doctor` finds what is wrong, and says how to mend it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apiary.cli.scaffold import write_application
from apiary.engine import migrating
from apiary.testing import TestServer

from .conftest import Dev, apiary


def checked(folder: Path, *options: str, **variables: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the checks by name."""
    done = apiary(folder, "doctor", *options, "--output", "json", **variables)
    assert done.stdout, done.stderr
    return done.returncode, {each["check"]: each for each in json.loads(done.stdout)}


def of_database(folder: Path, url: str) -> dict[str, Any]:
    """The checks of a database that is named by its variable."""
    return checked(folder, "--only", "database", APIARY_DATABASE_URL=url)[1]


def test_a_good_set_up_is_good(served: Dev) -> None:
    code, checks = checked(served.folder)
    assert {each["state"] for each in checks.values()} == {"ok"}, checks
    assert code == 0
    assert {"python", "postgresql binaries", "application", "database", "server version"} <= set(
        checks
    )
    assert {"plpython3u", "clock", "migrations", "roles", "privileges", "server"} <= set(checks)
    assert "server's python" in checks
    assert apiary(served.folder, "doctor").stdout.count("OK ") == len(checks)


def test_nobody_at_the_address_of_the_server(tmp_path: Path) -> None:
    code, checks = checked(tmp_path, "--only", "server", "--server", "127.0.0.1:1")
    assert code == 1
    assert checks["server"]["state"] == "failed"
    assert "apiary dev" in checks["server"]["mend"]


def test_no_application_and_one_that_cannot_be_read(tmp_path: Path) -> None:
    code, checks = checked(tmp_path, "--only", "local")
    assert (code, checks["application"]["state"]) == (0, "skipped")
    code, checks = checked(tmp_path, "--only", "local", "--path", ".")
    assert (code, checks["application"]["state"]) == (1, "failed")
    assert "apiary init" in checks["application"]["mend"]
    write_application(tmp_path / "shelf", "shelf")
    source = tmp_path / "shelf/functions/shelf/__init__.py"
    source.write_text(source.read_text().replace("SELECT message", "SELEKT message"))
    code, checks = checked(tmp_path, "--only", "local", "--path", "shelf")
    assert code == 1
    assert "functions/shelf/__init__.py:" in checks["application"]["found"]


def test_no_binaries_where_they_are_said_to_be(tmp_path: Path) -> None:
    _, checks = checked(tmp_path, "--only", "local", APIARY_PG_BIN=str(tmp_path))
    assert checks["postgresql binaries"]["state"] == "failed"
    assert "APIARY_PG_BIN" in checks["postgresql binaries"]["found"]


def test_a_database_that_is_away_or_refuses(tmp_path: Path, apiary_server: TestServer) -> None:
    away = of_database(tmp_path, "postgresql://127.0.0.1:1/x")
    assert away["database"]["state"] == "failed"
    wrong = psycopg.conninfo.conninfo_to_dict(apiary_server.admin_url)
    wrong["password"] = "not the password"
    refused = of_database(tmp_path, psycopg.conninfo.make_conninfo(**wrong))
    assert refused["database"]["state"] == "failed"
    assert "not the password" not in json.dumps(refused)


def test_a_database_without_the_platform_says_migrate(tmp_path: Path, database: str) -> None:
    checks = of_database(tmp_path, database)
    assert checks["plpython3u"]["state"] == "failed"
    assert checks["migrations"]["state"] == "failed"
    assert "apiary migrate" in checks["migrations"]["mend"]
    assert apiary(tmp_path, "migrate", APIARY_DATABASE_URL=database).returncode == 0
    assert {c["state"] for c in of_database(tmp_path, database).values()} == {"ok"}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("GRANT CREATE ON SCHEMA apiary TO apiary_runtime", "apiary_runtime may create"),
        ("GRANT INSERT ON apiary.operation TO apiary_reader", "apiary_reader may insert"),
        ("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA apiary FROM apiary_runtime", "may not execute"),
    ],
)
def test_privileges_that_are_too_wide_or_too_narrow(
    tmp_path: Path, database: str, damage: str, said: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        migrating.apply(connection)
        connection.execute(damage.encode())
        broken = of_database(tmp_path, database)["privileges"]
        assert broken["state"] == "failed"
        assert said in broken["found"]
        for statement in broken["mend"].split("; "):
            connection.execute(statement.encode())
    assert of_database(tmp_path, database)["privileges"]["state"] == "ok"


def test_an_edited_migration_is_found(tmp_path: Path, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        migrating.apply(connection)
        connection.execute("UPDATE apiary.migration SET checksum = 'another'")
    checks = of_database(tmp_path, database)
    assert checks["migrations"]["state"] == "failed"
