"""`apiary serve --processes`: several processes on one port, kept running, drained together."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psycopg
import pytest

from apiary import Client
from apiary.errors import UnavailableError
from apiary.local.starting import free_port
from apiary.testing import TestServer

from .conftest import apiary, environment

_PATIENCE_S = 60.0
_STARTS = 4  # of two at the same time


class Serving:
    """One `apiary -v serve --processes 2`, and what it says."""

    def __init__(self, folder: Path, login_url: str, listen: str = "127.0.0.1:0") -> None:
        self._log = folder / "serve.log"
        with self._log.open("w") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "apiary.cli", "-v", "serve"),
                    *("--listen", listen, "--processes", "2"),
                ],
                env=environment(APIARY_DATABASE_URL=login_url),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def address(self) -> str:
        (found,) = re.findall(r"^serving on (\S+)$", self.log, re.MULTILINE)
        return str(found)

    @property
    def started(self) -> list[int]:
        """The processes that have served, in this order."""
        return [int(pid) for pid in re.findall(r"\[(\d+)\] server_process_serves", self.log)]

    def until(self, condition: Callable[[], bool]) -> None:
        ends = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < ends, self.log
            time.sleep(0.02)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def serving(tmp_path: Path, login_url: str) -> Iterator[Serving]:
    made = Serving(tmp_path, login_url)
    try:
        made.until(lambda: "serving on" in made.log and len(made.started) == 2)
        yield made
    finally:
        made.end()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _accepted(pid: int, port: int) -> int:
    """How many connections to the port a process holds."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            established = fields[3] == "01"
            if established and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    held = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            held += os.readlink(descriptor) in inodes
    return held


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads /proc")
def test_two_processes_answer_on_one_port(serving: Serving) -> None:
    first, second = serving.started
    assert first != second
    port = int(serving.address.rpartition(":")[2])
    with ExitStack() as clients:
        for _ in range(64):  # the kernel chooses by the client's port
            client = clients.enter_context(Client(serving.address))
            assert client.call("guestbook.latest") == []
            if _accepted(first, port) and _accepted(second, port):
                break
        assert _accepted(first, port)
        assert _accepted(second, port)


def test_a_process_that_is_killed_is_started_again_and_the_other_serves_on(
    serving: Serving,
) -> None:
    killed, other = serving.started
    os.kill(killed, signal.SIGKILL)
    with Client(serving.address) as client:
        client.call("guestbook.sign", visitor="ada", message="hello")
        serving.until(lambda: len(serving.started) == 3)
        assert len(client.call("guestbook.latest")) == 1
    assert f"server_process_ended pid={killed} code=-9" in serving.log
    assert serving.started[2] not in (killed, other)
    assert _lives(other)
    # Now the new one has to serve alone.
    os.kill(other, signal.SIGKILL)
    with Client(serving.address) as client:
        assert len(client.call("guestbook.latest")) == 1


def _terminated(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)


def _interrupted_at_the_terminal(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGINT)  # each of them gets it


@pytest.mark.parametrize("stop", [_terminated, _interrupted_at_the_terminal])
def test_a_signal_drains_all_of_them(
    serving: Serving, stop: Callable[[subprocess.Popen[bytes]], None]
) -> None:
    address, pids = serving.address, serving.started
    stop(serving.process)
    assert serving.process.wait(_PATIENCE_S) == 0, serving.log
    assert serving.log.count("server_draining") == serving.log.count("server_stopped") == 2
    assert not any(_lives(pid) for pid in pids)
    assert "server_process_ended" not in serving.log  # they were to end
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))):
        pass  # nothing holds it any more


def test_a_second_signal_ends_all_of_them_at_once(
    serving: Serving, apiary_server: TestServer, login_url: str
) -> None:
    pids = serving.started
    database = psycopg.conninfo.conninfo_to_dict(login_url)["dbname"]
    outcomes: list[BaseException] = []

    def call() -> None:
        with Client(serving.address, retry_budget_s=0) as client:
            try:
                client.call("guestbook.sign", visitor="ada", message="hello")
            except UnavailableError as error:
                outcomes.append(error)

    with psycopg.connect(apiary_server.url(str(database))) as holder:
        holder.execute("LOCK TABLE guestbook.entry")
        calling = threading.Thread(target=call)
        calling.start()
        with psycopg.connect(apiary_server.admin_url, autocommit=True) as admin:
            serving.until(
                lambda: bool(
                    admin.execute(
                        "SELECT 1 FROM pg_stat_activity"
                        " WHERE datname = %s AND wait_event_type = 'Lock'",
                        [database],
                    ).fetchall()
                )
            )
        serving.process.send_signal(signal.SIGTERM)
        serving.until(lambda: serving.log.count("server_draining") == 2)
        assert serving.process.poll() is None
        serving.process.send_signal(signal.SIGTERM)
        assert serving.process.wait(_PATIENCE_S) == 128 + signal.SIGTERM
        calling.join(_PATIENCE_S)
        serving.until(lambda: not any(_lives(pid) for pid in pids))
    assert len(outcomes) == 1


def test_they_end_with_their_keeper(serving: Serving) -> None:
    pids = serving.started
    serving.process.kill()
    serving.until(lambda: not any(_lives(pid) for pid in pids))
    assert serving.log.count("server_stopped") == 2


def test_it_gives_up_when_a_process_cannot_start_again(
    serving: Serving, apiary_server: TestServer
) -> None:
    first, second = serving.started
    with psycopg.connect(apiary_server.admin_url, autocommit=True) as admin:
        admin.execute("REVOKE apiary_runtime FROM serve_test")
    os.kill(first, signal.SIGKILL)
    assert serving.process.wait(_PATIENCE_S) == 78, serving.log
    assert "may not run functions" in serving.log.splitlines()[-2]
    assert serving.log.count("code=78") == 4  # after the one that was killed
    assert not _lives(second)
    assert len(serving.started) == 2


def test_a_port_where_somebody_listens_is_refused(
    serving: Serving, login_url: str, tmp_path: Path
) -> None:
    for processes in ("1", "2"):
        done = apiary(
            tmp_path, "serve", "--listen", serving.address, "--processes", processes,
            APIARY_DATABASE_URL=login_url,
        )  # fmt: skip
        assert done.returncode == 78
        assert f"cannot listen on {serving.address}" in done.stderr
    assert len(serving.started) == 2


def test_of_two_that_start_together_one_serves_and_the_other_says_why(
    login_url: str, tmp_path: Path
) -> None:
    address = f"127.0.0.1:{free_port()}"
    for number in range(_STARTS):
        with ExitStack() as ending:
            both = []
            for name in ("one", "other"):
                folder = tmp_path / f"{name}_{number}"
                folder.mkdir()
                both.append(Serving(folder, login_url, address))
                ending.callback(both[-1].end)
            both[0].until(lambda both=both: any(each.process.poll() is not None for each in both))
            refused, serves = sorted(both, key=lambda each: each.process.poll() is None)
            assert refused.process.returncode == 78, refused.log
            assert f"cannot listen on {address}" in refused.log
            assert not refused.started
            serves.until(lambda serves=serves: "serving on" in serves.log)
            assert serves.address == address
            # In turn drained and killed: either way the next two find the port free.
            serves.process.send_signal(signal.SIGKILL if number % 2 else signal.SIGTERM)
            serves.process.wait(_PATIENCE_S)
            serves.until(lambda serves=serves: not any(_lives(pid) for pid in serves.started))


def test_what_cannot_be_served_ends_with_the_error_of_one_process(
    login_url: str, apiary_server: TestServer, tmp_path: Path
) -> None:
    empty = apiary_server.create_empty_database()
    try:
        for listen, url, says in (
            ("unix:serve.sock", login_url, "cannot listen on unix:serve.sock together"),
            ("nowhere.invalid:0", login_url, "needs tokens"),
            ("127.0.0.1:0", apiary_server.url(empty), "apiary migrate"),
        ):
            done = apiary(
                tmp_path, "serve", "--listen", listen, "--processes", "2", APIARY_DATABASE_URL=url
            )
            assert done.returncode == 78, done.stderr
            assert says in done.stderr
            assert "serving on" not in done.stderr
    finally:
        apiary_server.drop_database(empty)
