"""Trimming the log by command, against a real server."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apiary.client import Client
from apiary.testing import TestServer
from tests.integration.server.workflow_application import ledger_bundle
from tests.integration.server.workflow_world import World

from .conftest import apiary, environment

TRIM = ("log", "trim", "--older-than", "5d")


@pytest.fixture(scope="module")
def served(
    apiary_server: TestServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, Client]]:
    """A server, for the tests of the module."""
    name = apiary_server.create_database(ledger_bundle(tmp_path_factory.mktemp("ledger")))
    world = World(apiary_server.url(name))
    with Client(world.servers.start().address) as client:
        yield world, client
    world.close()
    apiary_server.drop_database(name)


@pytest.fixture
def world(served: tuple[World, Client]) -> World:
    """Its database, with three invocations of ten days ago."""
    world, client = served
    world.rows("TRUNCATE apiary.operation, apiary.attempt, provenance.write_event")
    for number in range(3):
        client.call("ledger.add", key="k", amount=number)
    world.rows(
        "UPDATE apiary.operation SET started_at = started_at - interval '10 days',"
        " finished_at = finished_at - interval '10 days'"
    )
    world.rows("UPDATE provenance.write_event SET at = at - interval '10 days'")
    return world


@pytest.fixture
def run(
    served: tuple[World, Client], tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command against the server, which has to end with ``code``."""
    address = served[1].address

    def command(*words: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        done = apiary(tmp_path, *words, APIARY_ADDRESS=address, **variables)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return command


def left(world: World) -> int:
    """How many invocations are still known."""
    return len(world.rows("SELECT 1 FROM apiary.operation"))


def test_a_dry_run_tells_what_then_goes(world: World, run: Any) -> None:
    counted = json.loads(run(*TRIM, "--dry-run", "-o", "json").stdout)
    assert {name: counted[name] for name in ("invocations", "attempts", "row_changes")} == {
        "invocations": 3,
        "attempts": 0,
        "row_changes": 3,
    }
    assert left(world) == 3
    done = run("log", "trim", "--before", counted["before"], "--yes")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["direct", "invocations", "3"],
        ["attempts", "0"],
        ["row", "changes", "3"],
    ]
    assert "deleted what is from before 20" in done.stderr
    assert left(world) == 0


def test_wrong_arguments_are_told(world: World, run: Any) -> None:
    for words, said in (
        ((), "give either"),
        (("--older-than", "5d", "--before", "2020-01-01"), "give either"),
        (("--older-than", "long"), "no length of time"),
        (("--older-than", "0d"), "more than 0"),
        (("--before", "yesterday"), "not a time"),
        (("--before", "9000-01-01"), "database's clock"),
    ):
        assert said in run("log", "trim", *words, code=2).stderr
    assert left(world) == 3


def test_it_asks_before(world: World, run: Any) -> None:
    asked = run(*TRIM, code=1, CI="")  # nobody answers
    assert "older than 5d" in asked.stderr
    assert left(world) == 3


def test_ctrl_c_stops_it_between_two_batches(
    served: tuple[World, Client], world: World, run: Any, wait_until: Any
) -> None:
    controller, terminal = pty.openpty()
    # The batch waits for a row that another transaction has, so that it can be stopped in time.
    with psycopg.connect(world.url) as other:
        other.execute("SELECT FROM provenance.write_event FOR UPDATE")
        process = subprocess.Popen(
            [sys.executable, "-m", "apiary.cli", *TRIM, "--server", served[1].address],
            env={**environment(), "TERM": "xterm", "COLUMNS": "120"}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=terminal,
        )  # fmt: skip
        os.close(terminal)
        shown = b""
        while b"3 direct invocations" not in shown:
            shown += os.read(controller, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        while b"goes on from there" not in shown:
            shown += os.read(controller, 4096)
        os.close(controller)
        # The server has let go of the batch that was under way.
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
        wait_until(lambda: not world.rows(waiting))
    assert process.stdout is not None
    assert process.stdout.read() == b""
    process.stdout.close()
    assert left(world) == 0  # what was done is done
    assert len(world.rows("SELECT 1 FROM provenance.write_event")) == 3
    assert json.loads(run(*TRIM, "-o", "json").stdout)["row_changes"] == 3
