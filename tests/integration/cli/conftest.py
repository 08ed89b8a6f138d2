"""Real commands in real folders: `apiary` and `apiary dev` as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apiary.authoring.application import Application
from apiary.authoring.bundle import build_bundle
from apiary.cli.devstate import DevRecord, running_dev
from apiary.cli.scaffold import write_application
from apiary.testing import TestServer

REPOSITORY = Path(__file__).resolve().parents[3]
START_TIMEOUT_S = 120.0


def environment(**more: str) -> dict[str, str]:
    """This process's environment without settings of the platform or of libpq."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("APIARY_", "PG")) or name == "APIARY_PG_BIN"
    }
    return {**kept, "PYTHONPATH": str(REPOSITORY), "CI": "1", **more}


def apiary(folder: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "apiary.cli", *command],
        cwd=folder,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def result(folder: Path, *command: str) -> Any:
    """The JSON that a command writes, which has to succeed."""
    done = apiary(folder, *command)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass
class Dev:
    """One `apiary dev` as a process."""

    folder: Path
    options: tuple[str, ...] = ("--port", "0")
    variables: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None

    @property
    def log(self) -> str:
        """What it wrote."""
        return (self.folder / "dev.log").read_text()

    def start(self) -> Dev:
        """Start it, and wait until it serves."""
        self.begin()
        self.until(lambda: running_dev(self.folder) is not None)
        return self

    def begin(self) -> None:
        """Start it without waiting."""
        with (self.folder / "dev.log").open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "apiary.cli", "dev", *self.options],
                cwd=self.folder,
                env=environment(**self.variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition while the process runs."""
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while not condition():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal and wait for its end; return its exit code."""
        self.send(number)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end; return its exit code."""
        assert self.process is not None
        return self.process.wait(60)

    @property
    def record(self) -> DevRecord:
        """What it says of itself."""
        found = running_dev(self.folder)
        assert found is not None
        return found

    def postmaster(self) -> int:
        """The process id of its PostgreSQL."""
        state = json.loads((self.folder / ".apiary/postgres/state.json").read_text())
        return int(state["postmaster"]["pid"])


@pytest.fixture
def start_dev() -> Iterator[Callable[..., Dev]]:
    """Makes `apiary dev` processes, which are gone when the test ends."""
    made: list[Dev] = []

    def make(folder: Path, *options: str, **variables: str) -> Dev:
        dev = Dev(folder, options or ("--port", "0"), variables)
        made.append(dev)
        return dev

    yield make
    for dev in made:
        if dev.process is not None and dev.process.poll() is None:
            dev.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An application of the name guestbook. Its database is made at the first start in a module;
    each test starts and stops an `apiary dev` of its own on it.
    """
    place = tmp_path_factory.mktemp("application") / "guestbook"
    write_application(place, "guestbook")
    return place


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A guestbook that `apiary dev --deploy` serves, for all tests of a module."""
    place = tmp_path_factory.mktemp("served") / "guestbook"
    write_application(place, "guestbook")
    dev = Dev(place, ("--port", "0", "--deploy"))
    try:
        yield dev.start()
    finally:
        if dev.process is not None and dev.process.poll() is None:
            dev.stop()


@pytest.fixture
def login_url(apiary_server: TestServer, tmp_path: Path) -> Iterator[str]:
    """A database with a guestbook, as a login of the runtime role."""
    write_application(tmp_path / "guestbook", "guestbook")
    bundle = build_bundle(Application.read(tmp_path / "guestbook"))
    name = apiary_server.create_database(bundle)
    with psycopg.connect(apiary_server.url(name), autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS serve_test")
        connection.execute("CREATE ROLE serve_test LOGIN PASSWORD 'serve' IN ROLE apiary_runtime")
        yield psycopg.conninfo.make_conninfo(
            apiary_server.url(name), user="serve_test", password="serve"
        )
    apiary_server.drop_database(name)
    with psycopg.connect(apiary_server.admin_url, autocommit=True) as connection:
        connection.execute("DROP ROLE serve_test")


@pytest.fixture
def database(apiary_server: TestServer) -> Iterator[str]:
    """The superuser's URL of an empty database."""
    name = apiary_server.create_empty_database()
    yield apiary_server.url(name)
    apiary_server.drop_database(name)
