"""A private cluster from its first start to its last, with real servers."""

from __future__ import annotations

import dataclasses
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from apiary.errors import BadArgument, ConfigurationError, ConflictError, NotFound
from apiary.local import Installation, PrivateCluster, find_installation, layout, starting
from apiary.local.layout import SOCKET_PATH_LIMIT_BYTES
from apiary.local.processes import ProcessMark

MakeCluster = Callable[..., PrivateCluster]

REPOSITORY = Path(__file__).resolve().parents[3]
AS_ROOT = os.geteuid() == 0
LINUX = sys.platform.startswith("linux")


def ask(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        cursor = connection.execute(query.encode())
        row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None


def finished_process() -> ProcessMark:
    """The mark of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        mark = ProcessMark.of(process.pid)
        process.kill()
    assert mark is not None
    assert not mark.alive()
    return mark


@pytest.mark.usefixtures("installation")
class TestFirstStart:
    def test_it_makes_the_data_and_serves_it(self, place: Path, throwaway: dict[str, str]) -> None:
        cluster = PrivateCluster(place / "new/pg", settings=throwaway)
        with cluster:
            assert ask(cluster.url(), "SELECT 1") == 1
            assert Path(str(cluster.describe()["data_directory"])).is_dir()
            assert len(cluster.admin_password) >= 24
        assert not list(place.rglob("postmaster.pid"))
        cluster.destroy()
        assert not (place / "new/pg").exists()

    def test_what_an_interrupted_initdb_left_is_cleared_away(
        self, place: Path, throwaway: dict[str, str]
    ) -> None:
        rest = place / "pg/data.new"
        rest.mkdir(parents=True)
        (place / "pg").chmod(0o755)
        (rest / "PG_VERSION").write_text("?")
        with PrivateCluster(place / "pg", settings=throwaway) as cluster:
            assert ask(cluster.url(), "SELECT 1") == 1
        assert not rest.exists()
        cluster.destroy()

    def test_a_failed_initdb_is_told_in_its_words(
        self, place: Path, installation: Installation
    ) -> None:
        bin_dir = place / "bin"
        bin_dir.mkdir()
        for name, script in (
            ("postgres", f'exec {installation.bin_dir}/postgres "$@"'),
            ("initdb", "echo 'the disk is full' >&2; exit 1"),
        ):
            (bin_dir / name).write_text(f"#!/bin/sh\n{script}\n")
            (bin_dir / name).chmod(0o755)
        broken = dataclasses.replace(installation, bin_dir=bin_dir)
        with pytest.raises(ConfigurationError, match="the disk is full"):
            PrivateCluster(place / "pg", installation=broken).start()
        assert not (place / "pg/credentials.json").exists()
        with pytest.raises(ConfigurationError, match="no PL/Python"):  # nor is it one to find
            find_installation(bin_dir)


class TestRunning:
    def test_it_answers_over_tcp_and_over_the_socket(self, shared: PrivateCluster) -> None:
        for url in (shared.url(), shared.socket_url()):
            version = ask(url, "SELECT current_setting('server_version_num')::int / 10000")
            assert version == shared.version_major

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("server_encoding", "UTF8"),
            ("lc_collate", "C"),
            ("data_checksums", "on"),
            ("password_encryption", "scram-sha-256"),
            ("listen_addresses", "127.0.0.1"),
            ("timezone", "UTC"),
            ("autovacuum", "on"),
            ("fsync", "off"),  # the caller's
            ("shared_buffers", "16MB"),  # the caller's, over a default
        ],
    )
    def test_its_settings(self, shared: PrivateCluster, setting: str, value: str) -> None:
        if setting == "lc_collate":
            found = ask(
                shared.url(), "SELECT datcollate FROM pg_database WHERE datname = 'postgres'"
            )
        else:
            found = ask(shared.url(), f"SELECT current_setting('{setting}')")
        assert found == value

    def test_statement_statistics_are_loaded_where_installed(self, shared: PrivateCluster) -> None:
        if not shared.installation.has_library("pg_stat_statements"):
            pytest.skip("pg_stat_statements is not installed")
        libraries = ask(shared.url(), "SELECT current_setting('shared_preload_libraries')")
        assert libraries == "pg_stat_statements"

    def test_python_runs_inside_without_the_callers_environment(
        self, make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONHOME", "/nowhere")
        monkeypatch.setenv("PGOPTIONS", "-c work_mem=64kB")
        cluster = make_cluster()
        cluster.start()
        monkeypatch.delenv("PGOPTIONS")
        ask(cluster.url(), "CREATE EXTENSION plpython3u")
        body = "import sys; return sys.getfilesystemencoding()"
        ask(cluster.url(), f"CREATE FUNCTION f() RETURNS text LANGUAGE plpython3u AS '{body}'")
        assert ask(cluster.url(), "SELECT f()") == "utf-8"

    def test_the_server_is_a_child_in_a_session_of_its_own(self, shared: PrivateCluster) -> None:
        assert os.getsid(shared.pid) == shared.pid
        assert os.getsid(0) != shared.pid

    @pytest.mark.skipif(not AS_ROOT, reason="only root changes to another account")
    def test_root_runs_it_as_an_unprivileged_account(self, shared: PrivateCluster) -> None:
        uid = Path(f"/proc/{shared.pid}").stat().st_uid if LINUX else None
        account = pwd.getpwnam(str(shared.describe()["account"]))
        assert account.pw_uid != 0
        assert uid in {None, account.pw_uid}
        assert Path(str(shared.describe()["data_directory"])).stat().st_uid == account.pw_uid

    def test_only_the_owner_may_read_the_credentials_and_the_log(
        self, shared: PrivateCluster
    ) -> None:
        for name in ("credentials.json", "state.json", "postgres.log"):
            status = (shared.directory / name).stat()
            assert status.st_mode & 0o777 == 0o600
            assert status.st_uid == os.geteuid()
        record = json.loads((shared.directory / "credentials.json").read_text())
        assert record["password"] == shared.admin_password

    def test_what_describes_it_holds_no_secret(self, shared: PrivateCluster) -> None:
        described = shared.describe()
        assert (described["pid"], described["port"]) == (shared.pid, shared.port)
        assert shared.admin_password not in json.dumps(described)

    def test_its_log_can_be_read(self, shared: PrivateCluster) -> None:
        assert "ready to accept connections" in shared.log_tail(50)
        assert len(shared.log_tail(2).splitlines()) == 2

    def test_a_second_start_is_refused_naming_the_server(self, shared: PrivateCluster) -> None:
        other = PrivateCluster(shared.directory, installation=shared.installation)
        for cluster in (shared, other):
            with pytest.raises(ConflictError, match=str(shared.pid)) as caught:
                cluster.start()
            assert caught.value.pid == shared.pid
            assert caught.value.owner_pid == os.getpid()
        assert ask(shared.socket_url(), "SELECT 1") == 1

    def test_it_is_not_destroyed_under_another_owner(self, shared: PrivateCluster) -> None:
        other = PrivateCluster(shared.directory, installation=shared.installation)
        with pytest.raises(ConflictError, match=str(shared.pid)):
            other.destroy()
        assert ask(shared.url(), "SELECT 1") == 1


class TestAccess:
    def test_a_wrong_password_is_refused(self, shared: PrivateCluster) -> None:
        for url in (shared.url(password="wrong"), shared.socket_url(password="wrong")):
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                ask(url, "SELECT 1")

    def test_no_password_is_refused(self, shared: PrivateCluster) -> None:
        ask(shared.url(), "CREATE ROLE nobody_in_particular LOGIN")
        with pytest.raises(psycopg.OperationalError, match="password"):
            ask(shared.url(user="nobody_in_particular"), "SELECT 1")

    def test_every_line_of_pg_hba_asks_for_scram(self, shared: PrivateCluster) -> None:
        text = (Path(str(shared.describe()["data_directory"])) / "pg_hba.conf").read_text()
        rules = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
        assert len(rules) >= 3
        assert {rule[-1] for rule in rules} == {"scram-sha-256"}

    def test_names_and_passwords_with_any_characters_fit_into_the_url(
        self, shared: PrivateCluster
    ) -> None:
        name, password = "a b/c?d#ü", "p@ss:w/o%rd &x"
        ask(shared.url(), f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{password}'")
        shared.create_database(name)
        for url in (shared.url(name, name, password), shared.socket_url(name, name, password)):
            assert ask(url, "SELECT current_user || '|' || current_database()") == f"{name}|{name}"

    def test_a_trusting_rule_for_tcp_is_refused(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        cluster.start()
        data = Path(str(cluster.describe()["data_directory"]))
        cluster.stop()
        with (data / "pg_hba.conf").open("a") as file:
            file.write("hostnossl all all 127.0.0.1/32 trust # for now\n")
        with pytest.raises(ConfigurationError, match=r"pg_hba\.conf, line \d+"):
            cluster.start()
        assert not cluster.running


class TestDatabases:
    def test_a_template_is_copied_with_its_contents(self, shared: PrivateCluster) -> None:
        shared.create_database("stencil")
        ask(shared.url("stencil"), "CREATE TABLE t AS SELECT 42 AS answer")
        for name in ("copy_1", "copy_2"):
            shared.create_database(name, template="stencil")
        ask(shared.url("copy_1"), "UPDATE t SET answer = 1")
        assert ask(shared.url("copy_1"), "SELECT answer FROM t") == 1
        assert ask(shared.url("copy_2"), "SELECT answer FROM t") == 42

    def test_dropping_ends_the_sessions(self, shared: PrivateCluster) -> None:
        shared.create_database("short_lived")
        connection = psycopg.connect(shared.url("short_lived"))
        shared.drop_database("short_lived")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        connection.close()
        with pytest.raises(NotFound, match="short_lived"):
            shared.drop_database("short_lived")

    def test_clashes_are_told_apart(self, shared: PrivateCluster) -> None:
        shared.create_database("taken")
        with pytest.raises(ConflictError, match="exists already"):
            shared.create_database("taken")
        with pytest.raises(NotFound, match="'absent'"):
            shared.create_database("fresh", template="absent")
        with (
            psycopg.connect(shared.url("taken")),
            pytest.raises(ConflictError, match="sessions use it"),
        ):
            shared.create_database("fresh", template="taken")


class TestLife:
    def test_stopping_and_starting_keeps_data_password_and_port(
        self, make_cluster: MakeCluster
    ) -> None:
        with make_cluster() as first:
            ask(first.url(), "CREATE TABLE kept AS SELECT 7 AS n")
            url, pid = first.url(), first.pid
        assert ProcessMark.of(pid) is None
        with make_cluster() as second:
            assert second.url() == url
            assert second.pid != pid
            assert ask(url, "SELECT n FROM kept") == 7

    def test_it_survives_a_crash_of_the_server(
        self, make_cluster: MakeCluster, throwaway: dict[str, str]
    ) -> None:
        # A commit that does not wait for the log may be lost; one that does may not.
        cluster = make_cluster(settings={**throwaway, "synchronous_commit": "on"})
        cluster.start()
        ask(cluster.url(), "CREATE TABLE kept AS SELECT 7 AS n")
        url = cluster.url()
        with psycopg.connect(url):  # a backend that has to notice
            cluster.kill()
            assert not cluster.running
            cluster.start()
        cluster.restart("immediate")
        cluster.restart()
        assert cluster.url() == url
        assert ask(url, "SELECT n FROM kept") == 7

    def test_an_end_by_itself_is_noticed(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        cluster.start()
        mark = ProcessMark.of(cluster.pid)
        assert mark is not None
        os.kill(cluster.pid, signal.SIGTERM)
        assert mark.wait(30)
        cluster.stop()
        with pytest.raises(ConflictError, match="not running"):
            _ = cluster.pid

    def test_it_outlives_the_thread_that_started_it(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        thread = threading.Thread(target=cluster.start)
        thread.start()
        thread.join()
        assert ask(cluster.url(), "SELECT 1") == 1
        assert cluster.running

    def test_an_unknown_stop_mode_is_refused(self, shared: PrivateCluster) -> None:
        with pytest.raises(BadArgument, match="'smart'"):
            shared.stop("smart")  # type: ignore[arg-type]
        assert shared.running

    def test_destroying_leaves_what_is_not_its_own(
        self, make_cluster: MakeCluster, place: Path
    ) -> None:
        (place / "pg").mkdir()
        (place / "pg/notes.txt").write_text("mine")
        cluster = make_cluster(prepared=False)
        cluster.start()
        cluster.destroy()
        assert [each.name for each in (place / "pg").iterdir()] == ["notes.txt"]


class TestOwner:
    SCRIPT = """
import sys
from pathlib import Path
from apiary.local import PrivateCluster
cluster = PrivateCluster(Path(sys.argv[1]), settings={"fsync": "off", "shared_buffers": "16MB"})
cluster.start()
print(cluster.pid, flush=True)
input()
"""

    @pytest.fixture
    def directory(self, make_cluster: MakeCluster, place: Path) -> Path:
        make_cluster()
        return place / "pg"

    def start_owner(self, directory: Path) -> tuple[subprocess.Popen[str], ProcessMark]:
        owner = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT, str(directory)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert owner.stdout is not None
        postmaster = ProcessMark.of(int(owner.stdout.readline()))
        assert postmaster is not None
        return owner, postmaster

    @pytest.mark.skipif(not LINUX, reason="only Linux signals the death of a parent")
    def test_the_server_ends_with_its_killed_owner(
        self, make_cluster: MakeCluster, directory: Path
    ) -> None:
        owner, postmaster = self.start_owner(directory)
        with owner:
            owner.kill()
        assert postmaster.wait(30)
        with make_cluster() as cluster:
            assert "database system is shut down" in cluster.log_tail(100)
            assert "was not properly shut down" not in cluster.log_tail(100)

    def test_a_killed_owners_cluster_can_be_started_at_once(
        self, make_cluster: MakeCluster, directory: Path
    ) -> None:
        owner, postmaster = self.start_owner(directory)
        with owner:
            owner.kill()
            owner.wait()
            with make_cluster() as cluster:
                assert not postmaster.alive()
                assert ask(cluster.url(), "SELECT 1") == 1

    def test_the_server_ends_with_an_owner_that_just_exits(self, directory: Path) -> None:
        owner, postmaster = self.start_owner(directory)
        with owner:
            owner.communicate("\n")
        assert owner.returncode == 0
        assert not postmaster.alive()
        assert not list(directory.rglob("postmaster.pid"))

    def test_a_living_owners_server_is_left_alone(
        self, make_cluster: MakeCluster, directory: Path
    ) -> None:
        owner, postmaster = self.start_owner(directory)
        with owner:
            with pytest.raises(ConflictError, match=f"process {owner.pid}"):
                make_cluster().start()
            assert postmaster.alive()
            owner.kill()

    def test_a_server_left_by_a_dead_owner_is_stopped_first(
        self, make_cluster: MakeCluster, place: Path
    ) -> None:
        first = make_cluster()
        first.start()
        postmaster = ProcessMark.of(first.pid)
        assert postmaster is not None
        state = json.loads((place / "pg/state.json").read_text())
        state["owner"] = finished_process().to_json()
        (place / "pg/state.json").write_text(json.dumps(state))
        with make_cluster() as second:
            assert not postmaster.alive()
            assert not first.running
            assert "was not properly shut down" not in second.log_tail(100)

    def test_a_server_that_nobody_here_started_is_left_alone(
        self, make_cluster: MakeCluster, place: Path
    ) -> None:
        with make_cluster() as first:
            (place / "pg/state.json").unlink()
            with pytest.raises(ConflictError, match="started by something else"):
                make_cluster().start()
            assert first.running

    @pytest.mark.skipif(not LINUX, reason="only Linux tells where another process works")
    def test_a_lock_file_with_a_pid_used_again_does_not_hinder(
        self, make_cluster: MakeCluster
    ) -> None:
        cluster = make_cluster()
        cluster.start()
        lock = Path(str(cluster.describe()["data_directory"])) / "postmaster.pid"
        text = lock.read_text().splitlines()
        cluster.kill()
        lock.write_text("\n".join([str(os.getpid()), *text[1:]]) + "\n")
        cluster.start()
        assert ask(cluster.url(), "SELECT 1") == 1


class TestPorts:
    def test_a_named_port_in_use_is_an_error(self, make_cluster: MakeCluster) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            cluster = make_cluster(port=port)
            with pytest.raises(ConfigurationError, match=f"port {port} .* in use"):
                cluster.start()
            assert not cluster.running
        cluster.start()
        assert cluster.port == port

    def test_another_postgresql_on_the_named_port_is_not_mistaken_for_it(
        self, make_cluster: MakeCluster, shared: PrivateCluster
    ) -> None:
        with pytest.raises(ConfigurationError, match="in use by another program"):
            make_cluster(port=shared.port).start()

    def test_a_chosen_port_that_was_taken_meanwhile_is_replaced(
        self, make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port, really_free = taken.getsockname()[1], starting.free_port()
            chosen = iter([port, really_free])
            monkeypatch.setattr(starting, "free_port", lambda: next(chosen))
            cluster = make_cluster()
            cluster.start()
            assert cluster.port == really_free

    def test_the_last_port_is_given_up_when_taken(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        cluster.start()
        last = cluster.port
        cluster.stop()
        with socket.create_server(("127.0.0.1", last)):
            cluster.start()
            assert cluster.port != last
            assert ask(cluster.url(), "SELECT 1") == 1


class TestPlaces:
    def test_a_long_path_has_its_socket_elsewhere(
        self, make_cluster: MakeCluster, place: Path
    ) -> None:
        deep = place / ("d" * 60) / ("e" * 60)
        cluster = make_cluster(deep)
        cluster.start()
        directory = Path(str(cluster.describe()["socket_directory"]))
        assert len(os.fsencode(directory / f".s.PGSQL.{cluster.port}")) <= SOCKET_PATH_LIMIT_BYTES
        assert not directory.is_relative_to(deep)
        assert ask(cluster.socket_url(), "SELECT 1") == 1
        cluster.stop()
        assert not directory.exists()

    def test_odd_characters_in_the_path_do_no_harm(
        self, make_cluster: MakeCluster, place: Path
    ) -> None:
        with make_cluster(place / 'a, b "ü" %') as cluster:
            assert ask(cluster.socket_url(), "SELECT 1") == 1

    @pytest.mark.skipif(not AS_ROOT, reason="only root changes to another account")
    def test_data_in_a_directory_closed_to_the_server_is_kept_elsewhere(
        self, make_cluster: MakeCluster, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(layout, "SYSTEM_PLACE", place / "system")
        monkeypatch.setattr(layout, "temporary_directories", lambda: [place / "tmp"])
        closed = place / "home"
        closed.mkdir(mode=0o700)
        cluster = make_cluster(closed / "pg", prepared=False)
        with cluster:
            ask(cluster.url(), "CREATE TABLE kept AS SELECT 7 AS n")
        described = cluster.describe()
        data = Path(str(described["data_directory"]))
        assert data.is_relative_to(place / "system")
        assert "cannot enter" in str(described["data_is_elsewhere_because"])
        assert closed.stat().st_mode & 0o777 == 0o700
        with make_cluster(closed / "pg", prepared=False) as again:
            assert again.describe()["data_directory"] == str(data)
            assert ask(again.url(), "SELECT n FROM kept") == 7
            again.destroy()
        assert not data.parent.exists()
        assert not (closed / "pg").exists()

    @pytest.mark.skipif(not AS_ROOT, reason="only root changes to another account")
    def test_what_is_temporary_stays_temporary(
        self, make_cluster: MakeCluster, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(layout, "temporary_directories", lambda: [place])
        closed = place / "session"
        closed.mkdir(mode=0o700)
        with make_cluster(closed / "pg", prepared=False) as cluster:
            data = Path(str(cluster.describe()["data_directory"]))
            assert data.parent.parent == place

    @pytest.mark.skipif(not AS_ROOT, reason="only root changes to another account")
    def test_without_any_open_place_the_closed_directory_is_named(
        self, place: Path, monkeypatch: pytest.MonkeyPatch, installation: Installation
    ) -> None:
        closed = place / "home"
        closed.mkdir(mode=0o700)
        monkeypatch.setattr(layout, "SYSTEM_PLACE", closed / "system")
        monkeypatch.setattr(layout, "temporary_directories", lambda: [closed])
        cluster = PrivateCluster(closed / "a/pg", installation=installation)
        with pytest.raises(ConfigurationError, match=f"cannot enter {closed} on the way"):
            cluster.start()

    def test_vanished_data_is_not_silently_replaced(
        self, make_cluster: MakeCluster, place: Path
    ) -> None:
        cluster = make_cluster()
        with cluster:
            data = Path(str(cluster.describe()["data_directory"]))
        data.rename(place / "elsewhere")
        with pytest.raises(ConfigurationError, match="which is gone"):
            cluster.start()
        (place / "elsewhere").rename(data)
        cluster.start()
        assert cluster.running


class TestRefusals:
    def test_data_of_another_version(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster()
        with cluster:
            data = Path(str(cluster.describe()["data_directory"]))
        (data / "PG_VERSION").write_text("12\n")
        with pytest.raises(ConfigurationError, match="PostgreSQL 12") as caught:
            cluster.start()
        assert f"version {cluster.version_major}" in caught.value.message
        assert "APIARY_PG_BIN" in str(caught.value.hint)
        assert "pg_upgrade" in str(caught.value.hint)

    def test_a_setting_that_the_server_refuses_is_shown_in_its_words(
        self, make_cluster: MakeCluster, throwaway: dict[str, str]
    ) -> None:
        cluster = make_cluster(settings={**throwaway, "work_mem": "plenty"})
        with pytest.raises(ConfigurationError, match="work_mem"):
            cluster.start()
        assert not cluster.running

    @pytest.mark.parametrize("name", ["port", "Listen_Addresses", "a=b", "-x"])
    def test_a_setting_that_is_not_the_callers(self, place: Path, name: str) -> None:
        with pytest.raises(BadArgument, match=name):
            PrivateCluster(place, settings={name: "1"})

    def test_a_changed_password_is_told_at_once_and_nothing_is_left_running(
        self, make_cluster: MakeCluster, place: Path
    ) -> None:
        cluster = make_cluster()
        with cluster:
            ask(cluster.url(), "ALTER ROLE postgres PASSWORD 'another'")
            data = Path(str(cluster.describe()["data_directory"]))
        with pytest.raises(ConfigurationError, match=r"credentials\.json"):
            cluster.start()
        assert not cluster.running
        assert not (data / "postmaster.pid").exists()

    def test_a_damaged_record(self, make_cluster: MakeCluster, place: Path) -> None:
        cluster = make_cluster()
        with cluster:
            credentials = place / "pg/credentials.json"
        good = credentials.read_text()
        credentials.write_text(good[:20])
        with pytest.raises(ConfigurationError, match=r"credentials\.json"):
            cluster.start()
        credentials.write_text(good)

    def test_nothing_is_known_before_the_first_start(self, place: Path) -> None:
        cluster = PrivateCluster(place / "pg")
        for read in (cluster.url, cluster.socket_url, lambda: cluster.pid):
            with pytest.raises(ConflictError, match="start"):
                read()
        assert cluster.log_tail() == ""
