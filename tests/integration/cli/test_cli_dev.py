"""`apiary dev` as a user has it: one process group, one folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from apiary.cli.devstate import running_dev
from apiary.cli.scaffold import write_application
from apiary.testing import TestServer
from tests.processes import is_alive

from .conftest import Dev, apiary, result

Start = Callable[..., Dev]
OBSERVED_S = 10


def test_a_second_start_goes_on_with_the_same_data(folder: Path, start_dev: Start) -> None:
    first = start_dev(folder, "--port", "0", "--deploy").start()
    number = result(folder, "call", "guestbook.sign", "visitor=ada", "message=resumed")
    assert first.stop() == 0
    start_dev(folder).start()
    assert result(folder, "call", "guestbook.latest", "limit:=1") == ["resumed"]
    assert result(folder, "call", "guestbook.sign", "visitor=ada", "message=next") > number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all_of_it(folder: Path, start_dev: Start, number: signal.Signals) -> None:
    dev = start_dev(folder).start()
    postmaster = dev.postmaster()
    assert is_alive(postmaster)
    assert dev.stop(number) == 0
    assert not is_alive(postmaster)
    assert running_dev(folder) is None
    assert not (folder / ".apiary/dev.json").exists()
    assert "Traceback" not in dev.log


def test_a_second_signal_ends_it_at_once_and_the_data_survives(
    folder: Path, start_dev: Start
) -> None:
    dev = start_dev(folder, "--port", "0", "--deploy").start()
    result(folder, "call", "guestbook.sign", "visitor=ada", "message=survives")
    postmaster = dev.postmaster()
    dev.send(signal.SIGSTOP)  # so that it meets both signals together
    dev.send(signal.SIGINT)
    dev.send(signal.SIGTERM)
    dev.send(signal.SIGCONT)
    assert dev.ended() == 130
    start_dev(folder).start()  # also waits for the end of the postmaster that was left
    assert not is_alive(postmaster)
    assert result(folder, "call", "guestbook.latest", "limit:=1") == ["survives"]


def test_a_signal_while_it_starts_leaves_nothing(tmp_path: Path, start_dev: Start) -> None:
    folder = tmp_path / "fresh"
    folder.mkdir()
    dev = start_dev(folder)
    dev.begin()
    dev.until((folder / ".apiary/postgres").exists)  # it is being made now
    assert dev.stop(signal.SIGTERM) == 130
    assert running_dev(folder) is None
    assert "Traceback" not in dev.log
    start_dev(folder).start()


def test_a_killed_dev_is_not_in_the_way(folder: Path, start_dev: Start) -> None:
    dev = start_dev(folder).start()
    assert dev.stop(signal.SIGKILL) == -signal.SIGKILL
    assert apiary(folder, "function", "list").returncode == 69
    start_dev(folder).start()
    assert apiary(folder, "function", "list").returncode == 0


def test_only_one_runs_in_a_folder(folder: Path, start_dev: Start) -> None:
    dev = start_dev(folder).start()
    second = apiary(folder, "dev", "--port", "0")
    assert second.returncode == 4
    assert dev.record.address in second.stderr
    assert str(dev.record.process["pid"]) in second.stderr
    assert dev.process is not None
    assert dev.process.poll() is None


def test_no_secret_is_told(folder: Path, start_dev: Start) -> None:
    dev = start_dev(folder).start()
    state = folder / ".apiary"
    secrets = [line.split(":")[4] for line in (state / "pgpass").read_text().splitlines()]
    assert len(secrets) == 3
    shown = dev.log + (state / "dev.json").read_text() + apiary(folder, "config", "show").stdout
    for secret in secrets:
        assert secret not in shown
    for name in ("pgpass", "dev.json", "postgres/credentials.json"):
        assert (state / name).stat().st_mode & 0o077 == 0, name


def test_the_server_logs_in_with_no_more_than_it_needs(folder: Path, start_dev: Start) -> None:
    dev = start_dev(folder, "--port", "0", "--deploy").start()
    result(folder, "call", "guestbook.latest")
    with psycopg.connect(dev.record.database_url) as connection:
        users = connection.execute(
            "SELECT DISTINCT usename FROM pg_stat_activity WHERE application_name = 'apiary server'"
        ).fetchall()
        assert users == [("apiary_dev_runtime",)]
        superusers = connection.execute(
            "SELECT count(*) FROM pg_roles WHERE rolname ~ '^apiary_' AND rolsuper"
        ).fetchone()
        assert superusers == (0,)
    with psycopg.connect(dev.record.reader_url) as connection, pytest.raises(psycopg.Error):
        connection.execute("INSERT INTO guestbook.entry (visitor, message) VALUES ('x', 'y')")


def test_a_port_in_use_is_refused_and_nothing_is_left(folder: Path, start_dev: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        dev = start_dev(folder, "--port", port)
        dev.begin()
        assert dev.ended() == 78
    assert f"127.0.0.1:{port}" in dev.log
    assert "Traceback" not in dev.log
    assert not is_alive(dev.postmaster())


def test_data_of_another_version_is_refused(folder: Path, start_dev: Start) -> None:
    first = start_dev(folder).start()
    assert first.stop() == 0
    credentials = json.loads((folder / ".apiary/postgres/credentials.json").read_text())
    place = Path(credentials.get("place", folder / ".apiary/postgres"))
    version = place / "data/PG_VERSION"
    real = version.read_text()
    version.write_text("9.6\n")
    second = apiary(folder, "dev", "--port", "0")
    version.write_text(real)
    assert second.returncode == 78
    assert "9.6" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_syntax_error_names_file_and_line_and_changes_nothing(
    folder: Path, start_dev: Start
) -> None:
    start_dev(folder, "--port", "0", "--deploy").start()
    before = result(folder, "function", "list", "--output", "json")
    source = folder / "functions/guestbook/__init__.py"
    good = source.read_text()
    source.write_text(good + "\ndef broken(:\n")
    try:
        for command in (("deploy",), ("deploy", "--check"), ("dev", "--deploy")):
            refused = apiary(folder, *command)
            assert refused.returncode == 2, refused.stderr
            line = good.count("\n") + 2
            assert f"functions/guestbook/__init__.py:{line}" in refused.stderr
    finally:
        source.write_text(good)
    assert result(folder, "function", "list", "--output", "json") == before


def test_an_existing_server_is_used_when_it_is_named(
    tmp_path: Path, start_dev: Start, apiary_server: TestServer
) -> None:
    folder = tmp_path / "guestbook"
    write_application(folder, "guestbook")
    name = apiary_server.create_database()
    try:
        dev = start_dev(
            folder, "--port", "0", "--deploy", APIARY_DATABASE_URL=apiary_server.url(name)
        ).start()
        assert result(folder, "call", "guestbook.sign", "visitor=ada", "message=hello") == 1
        assert not (folder / ".apiary/postgres").exists()
        assert dev.stop() == 0
    finally:
        apiary_server.drop_database(name)


def test_a_database_that_is_away_at_the_start_is_told(folder: Path) -> None:
    url = "postgresql://ada:s3cret@127.0.0.1:1/nowhere"
    for command in (("dev",), ("serve",), ("migrate",)):
        done = apiary(folder, *command, APIARY_DATABASE_URL=url)
        assert done.returncode == 69, done.stderr
        assert "s3cret" not in done.stderr
        assert "Traceback" not in done.stderr


def test_a_database_that_goes_away_by_itself_ends_it(folder: Path, start_dev: Start) -> None:
    dev = start_dev(folder).start()
    os.kill(dev.postmaster(), signal.SIGQUIT)
    assert dev.ended() == 69
    assert "ended by itself" in dev.log


def test_an_idle_dev_leaves_its_database_in_peace(folder: Path, start_dev: Start) -> None:
    dev = start_dev(folder).start()
    credentials = json.loads((folder / ".apiary/postgres/credentials.json").read_text())
    url = psycopg.conninfo.make_conninfo(
        dev.record.database_url.partition("?")[0],
        user=credentials["user"],
        password=credentials["password"],
    )
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("SHOW shared_preload_libraries").fetchone() == ("",):
            pytest.skip("the server has no pg_stat_statements")
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        connection.execute("SELECT pg_stat_statements_reset()")
        time.sleep(OBSERVED_S)  # the rate over a time is what is measured
        row = connection.execute(
            "SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements"
            " WHERE userid <> current_user::regrole"
        ).fetchone()
    assert row is not None
    assert 0 < row[0] <= 2 * OBSERVED_S
