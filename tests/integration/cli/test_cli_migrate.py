"""`apiary migrate`: planned, printed, applied."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

from apiary.engine import migrating
from apiary.testing import TestServer

from .conftest import apiary


def migrate(folder: Path, url: str, *options: str) -> subprocess.CompletedProcess[str]:
    return apiary(folder, "migrate", *options, APIARY_DATABASE_URL=url)


def test_a_plan_changes_nothing_and_a_second_run_has_nothing_to_do(
    tmp_path: Path, database: str
) -> None:
    planned = json.loads(migrate(tmp_path, database, "--plan", "--output", "json").stdout)
    assert planned["applied"] is False
    assert planned["migrations"][0] == "000_roles.sql"
    applied = json.loads(migrate(tmp_path, database, "--output", "json").stdout)
    assert applied["migrations"] == planned["migrations"]
    again = migrate(tmp_path, database)
    assert (again.returncode, again.stdout) == (0, "")
    assert "up to date" in again.stderr


def test_what_is_printed_does_the_same_when_psql_runs_it(tmp_path: Path, database: str) -> None:
    psql = shutil.which("psql")
    if psql is None:
        pytest.skip("psql is not installed")
    printed = migrate(tmp_path, database, "--print")
    assert printed.returncode == 0
    subprocess.run(
        [psql, "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", database],
        input=printed.stdout,
        text=True,
        check=True,
        capture_output=True,
    )
    with psycopg.connect(database, autocommit=True) as connection:
        assert migrating.plan(connection).empty
    assert migrate(tmp_path, database, "--print").stdout == ""


def test_a_role_that_may_not_install_is_told_so(
    tmp_path: Path, database: str, apiary_server: TestServer
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS plain_user")
        connection.execute("CREATE ROLE plain_user LOGIN PASSWORD 'plain'")
        try:
            url = psycopg.conninfo.make_conninfo(database, user="plain_user", password="plain")
            refused = migrate(tmp_path, url)
            assert refused.returncode == 5, refused.stderr
            assert "superuser" in refused.stderr
        finally:
            connection.execute("DROP ROLE plain_user")
