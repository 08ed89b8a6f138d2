"""Workflows, queues, schedules and deployments by commands, against a real `apiary dev`."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apiary.cli.app import app
from apiary.cli.failures import guarded
from tests.integration.server.workflow_application import WORKFLOWS, write_ledger

from .conftest import Dev, apiary, environment

Dones = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """The application with workflows, served by `apiary dev --deploy`."""
    place = write_ledger(tmp_path_factory.mktemp("books") / "ledgers")
    dev = Dev(place, ("--port", "0", "--deploy"))
    try:
        yield dev.start()
    finally:
        if dev.process is not None and dev.process.poll() is None:
            dev.stop()


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the platform or of libpq from outside; nothing is asked."""
    for name in list(os.environ):
        if name.startswith(("APIARY_", "PG")) and name != "APIARY_PG_BIN":
            monkeypatch.delenv(name)
    monkeypatch.setenv("CI", "1")


def run(dev: Dev, *command: str, code: int = 0) -> Dones:
    """A command in the application's folder, which has to end with ``code``.

    In this process, as `apiary.cli.main` runs it: a process for each takes most of the time.
    """
    out, err = io.StringIO(), io.StringIO()
    here = Path.cwd()
    os.chdir(dev.folder)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            ended = guarded(lambda: app(list(command), prog_name="apiary"))
    finally:
        os.chdir(here)
    done = subprocess.CompletedProcess(command, ended, out.getvalue(), err.getvalue())
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def result(folder: Path, *command: str) -> Any:
    """The JSON that a command writes, which has to succeed."""
    return json.loads(run(Dev(folder), *command).stdout)


def waiting(dev: Dev, run_id: str, *more: str) -> str:
    """A run that is parked for a message on a topic of its own name."""
    run(dev, "workflow", "start", "books.greet", f"topic={run_id}", "--id", run_id, *more)
    until(
        lambda: result(dev.folder, "workflow", "get", run_id, "-o", "json")["status"] == "WAITING"
    )
    return run_id


def read_to_the_end(controller: int) -> bytes:
    """What is written to a terminal until its other end is closed."""
    read = b""
    with suppress(OSError):  # which is how that is told
        while part := os.read(controller, 4096):
            read += part
    return read


def until(condition: Any) -> None:
    ends = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < ends, "the condition did not come true within 20 s"
        time.sleep(0.1)


def test_start_and_wait_prints_the_result_and_nothing_else(books: Dev) -> None:
    started = run(
        books, "workflow", "start", "books.squares", "key=cli", "values:=[2, 3]", "--id", "cli",
        "--wait",
    )  # fmt: skip
    assert json.loads(started.stdout) == [4, 9]
    assert started.stderr == "run cli\n"
    again = run(
        books, "workflow", "start", "books.squares", "key=cli", "values:=[2, 3]", "--id", "cli",
        "--wait",
    )  # fmt: skip
    assert json.loads(again.stdout) == [4, 9]
    assert "was there already" in again.stderr
    taken = run(
        books, "workflow", "start", "books.squares", "key=cli", "values:=[4]", "--id", "cli", code=4
    )
    assert "error: run cli is taken" in taken.stderr
    here = apiary(books.folder, "workflow", "start", "books.fill", "key=here", "amounts:=[1, 2]")
    assert here.returncode == 0, here.stderr
    assert json.loads(run(books, "workflow", "wait", here.stdout.strip()).stdout) == 3


def test_a_failed_run_exits_with_1_and_one_out_of_time_with_124(books: Dev) -> None:
    failed = run(books, "workflow", "start", "books.fail", "key=f", "--wait", code=1)
    assert failed.stdout == ""
    assert "SoldOut: nothing left of f" in failed.stderr
    late = run(
        books, "workflow", "start", "books.nap", "seconds:=60", "--timeout", "0.5s", "--wait",
        code=124,
    )  # fmt: skip
    assert "did not end before" in late.stderr
    asleep = run(books, "workflow", "start", "books.nap", "seconds:=60", "--id", "asleep")
    assert asleep.stdout == "asleep\n"
    impatient = run(books, "workflow", "wait", "asleep", "--timeout", "0.3", code=124)
    assert "it goes on" in impatient.stderr
    run(books, "workflow", "cancel", "asleep")
    assert "was cancelled" in run(books, "workflow", "wait", "asleep", code=1).stderr
    run(books, "workflow", "wait", "nobody", code=3)


def test_text_for_a_number_is_told_how_to_write_it(books: Dev) -> None:
    wrong = run(books, "workflow", "start", "books.nap", "seconds=60", code=2)
    assert "seconds:=60" in wrong.stderr
    near = run(books, "workflow", "start", "books.na", "seconds:=60", code=3)
    assert "did you mean books.nap?" in near.stderr


def test_ctrl_c_stops_the_waiting_and_not_the_run(books: Dev) -> None:
    waiting(books, "patient")
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "apiary.cli", "workflow", "wait", "patient"],
        cwd=books.folder, env={**environment(), "TERM": "xterm"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=terminal, text=True,
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    while b"WAITING" not in shown:  # the bar: it waits now
        shown += os.read(controller, 4096)
    process.send_signal(signal.SIGINT)
    shown += read_to_the_end(controller)
    out, _ = process.communicate(timeout=20)
    os.close(controller)
    assert (process.returncode, out) == (130, ""), shown
    assert b"apiary workflow cancel patient" in shown
    assert b"Traceback" not in shown
    run(books, "workflow", "send", "patient", "ada", "--topic", "patient")
    assert json.loads(run(books, "workflow", "wait", "patient").stdout) == "hello ada"


def test_a_terminal_shows_a_live_bar(books: Dev) -> None:
    controller, terminal = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "apiary.cli", "workflow", "start", "books.squares", "key=bar",
             "values:=[1,2,3]", "--wait"],
            cwd=books.folder, env={**environment(), "TERM": "xterm", "COLUMNS": "120"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal,
        )  # fmt: skip
        os.close(terminal)
        shown = read_to_the_end(controller)
        assert process.stdout is not None
        assert json.loads(process.stdout.read()) == [1, 4, 9]
        process.stdout.close()
        assert process.wait(20) == 0
    finally:
        os.close(controller)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert "books.squares" in text
    assert "squared 3" in text


def test_runs_are_listed_and_shown(books: Dev) -> None:
    run(books, "workflow", "start", "books.fill", "key=l", "amounts:=[1]", "--id", "listed")
    run(books, "call", "ledger.add", "key=l", "amount:=1", "--id", "listed-call")
    listed = result(books.folder, "workflow", "list", "--prefix", "listed", "-o", "json")
    assert [each["run_id"] for each in listed] == ["listed"]
    both = result(books.folder, "run", "list", "--prefix", "listed", "-o", "json")
    assert {each["kind"] for each in both} == {"function", "workflow"}
    assert "listed" in run(books, "workflow", "list", "--name", "books.fill").stdout
    shown = run(books, "workflow", "get", "listed").stdout
    assert "database" in shown
    assert "ledger.add" in shown
    steps = result(books.folder, "workflow", "steps", "listed", "-o", "json")
    assert [each["name"] for each in steps] == ["ledger.add", "ledger.total"]
    assert "it has ended: SUCCEEDED" in run(books, "workflow", "why", "listed").stdout
    run(books, "workflow", "why", "nobody", code=3)


def test_definitions_and_where_they_run(books: Dev) -> None:
    found = result(books.folder, "workflow", "list", "--definitions", "-o", "json")
    assert {each["name"]: each["in_database"] for each in found}["books.fill"] is True
    explained = run(books, "workflow", "explain", "books.squares").stdout
    assert "in an executor" in explained
    assert "workflows/books/__init__.py:" in explained
    assert "in the database" in run(books, "workflow", "explain", "books.fill").stdout
    run(books, "workflow", "explain", "books.nothing", code=3)


def test_a_run_is_taken_in_hand(books: Dev) -> None:
    waiting(books, "hand")
    assert run(books, "workflow", "cancel", "hand", "--reason", "no need").stdout == "hand\n"
    assert "had ended already" in run(books, "workflow", "cancel", "hand").stderr
    run(books, "workflow", "resume", "hand")
    run(books, "workflow", "resume", "listed-nothing", code=3)
    run(books, "workflow", "send", "hand", '"bo"', "--json", "--topic", "hand")
    assert json.loads(run(books, "workflow", "wait", "hand").stdout) == "hello bo"
    refused = run(books, "workflow", "resume", "hand", code=4)
    assert "only one that is STUCK" in refused.stderr
    assert json.loads(run(books, "workflow", "event", "hand", "greeted").stdout) == "bo"
    run(books, "workflow", "event", "hand", "nothing", code=3)
    run(books, "workflow", "start", "books.squares", "key=fork", "values:=[2, 3]", "--id", "origin",
        "--wait")  # fmt: skip
    run(
        books, "workflow", "fork", "origin", "--from-seq", "3", "--output-json", "5", "--id", "fork"
    )
    assert json.loads(run(books, "workflow", "wait", "fork").stdout) == [4, 5]
    again = run(books, "workflow", "restart", "origin", "--id", "again").stdout.strip()
    assert json.loads(run(books, "workflow", "wait", again).stdout) == [4, 9]
    run(books, "workflow", "fork", "nobody", "--from-seq", "1", code=3)
    run(books, "workflow", "delete", "fork", "again", "--yes")
    run(books, "workflow", "get", "fork", code=3)
    run(books, "workflow", "delete", "fork", "--yes", code=3)
    run(books, "workflow", "delete", "--yes", code=2)
    kept = run(books, "workflow", "delete", "--ended-before", "2020-01-01T00:00:00Z", "--yes")
    assert "deleted 0 runs" in kept.stderr


def test_a_stream_is_printed_line_by_line(books: Dev) -> None:
    run(books, "workflow", "start", "books.count", "up_to:=2", "--id", "count")
    run(books, "workflow", "send", "count", "x", "--topic", "go")
    followed = run(books, "workflow", "stream", "count", "numbers", "--follow").stdout
    assert followed == '0\n1\n"end"\n'
    assert run(books, "workflow", "stream", "count", "numbers", "--offset", "2").stdout == '"end"\n'


def test_queues(books: Dev) -> None:
    made = result(
        books.folder, "queue", "put", "narrow", "--concurrency", "1", "--rate", "5", "--per", "1m",
        "-o", "json",
    )  # fmt: skip
    assert (made[0]["concurrency"], made[0]["rate_period_s"]) == (1, 60.0)
    run(books, "queue", "pause", "narrow")
    run(books, "workflow", "start", "books.fill", "key=q", "amounts:=[1]", "--id", "queued",
        "--queue", "narrow")  # fmt: skip
    assert "queue narrow is paused" in run(books, "workflow", "why", "queued").stdout
    assert "paused" in run(books, "queue", "list").stdout
    assert "1 unfinished run" in run(books, "queue", "delete", "narrow", "--yes", code=4).stderr
    run(books, "queue", "resume", "narrow")
    assert json.loads(run(books, "workflow", "wait", "queued").stdout) == 1
    run(books, "queue", "delete", "narrow", "--yes")
    run(books, "queue", "pause", "narrow", code=3)
    run(books, "queue", "put", "odd", "--rate", "5", "--per", "soon", code=2)


def test_schedules(books: Dev) -> None:
    put = ("schedule", "put", "nightly", "books.fill", "key=s", "amounts:=[1]")
    run(books, *put, "--cron", "30 2 * * *", "--zone", "Europe/Berlin")
    times = result(books.folder, "schedule", "next", "nightly", "--count", "2", "-o", "json")
    assert all("T02:30:00+0" in time or "T03:00:00+0" in time for time in times)
    assert "nightly" in run(books, "schedule", "list").stdout
    run(books, "schedule", "pause", "nightly")
    assert "paused" in run(books, "schedule", "list").stdout
    run(books, "schedule", "resume", "nightly")
    backfill = ("schedule", "backfill", "nightly", "--since", "2026-06-01", "--until", "2026-06-03")
    started = run(books, *backfill).stdout.split()
    assert len(started) == 2
    assert json.loads(run(books, "workflow", "wait", started[0]).stdout) >= 1
    assert run(books, *backfill).stdout == ""
    run(books, "schedule", "delete", "nightly", "--yes")
    run(books, "schedule", "next", "nightly", code=3)
    run(books, *put, "--cron", "61 * * * *", code=2)
    run(books, *put, code=2)


def test_deployments_and_the_check_of_running_runs(books: Dev) -> None:
    source = books.folder / "workflows/books/__init__.py"
    waiting(books, "kept")
    (current,) = result(books.folder, "deployment", "list", "-o", "json")
    assert current["current"]
    assert current["live_runs"] >= 1
    source.write_text(
        WORKFLOWS.replace("    name = apiary.recv(", "    square(1)\n    name = apiary.recv(")
    )
    try:
        run(books, "workflow", "send", "kept", "ada", "--topic", "other")
        calm = run(books, "deploy", "--check")
        assert "unfinished run" in calm.stderr
        assert "would break" not in calm.stderr  # it has recorded nothing yet
        run(books, "workflow", "start", "books.nap", "seconds:=600", "--id", "napping")
        until(lambda: "it sleeps until" in run(books, "workflow", "why", "napping").stdout)
        source.write_text(
            WORKFLOWS.replace("    apiary.sleep(", "    square(1)\n    apiary.sleep(")
        )
        checked = run(books, "deploy", "--check")
        assert "warning: run napping of books.nap would break" in checked.stderr
        assert "sleep" in checked.stderr
        assert "step books.square" in checked.stderr
        url = books.record.database_url
        straight = result(
            books.folder, "deploy", "--check", "--database-url", url, "--output", "json"
        )
        assert [each["run_id"] for each in straight["replay"]["problems"]] == ["napping"]
        run(books, "deploy")
        refused = run(books, "deployment", "remove", current["id"], "--yes", code=4)
        assert "have not ended" in refused.stderr
        assert "unfinished" in run(books, "deploy", "--check").stderr
    finally:
        source.write_text(WORKFLOWS)
        run(books, "deploy")
    for run_id in ("kept", "napping"):
        run(books, "workflow", "cancel", run_id)
    (other,) = [
        d for d in result(books.folder, "deployment", "list", "-o", "json") if not d["current"]
    ]
    run(books, "deployment", "remove", other["id"], "--yes")
    run(books, "deployment", "remove", other["id"], "--yes", code=3)


def test_an_executor_process_drains_at_the_first_signal_and_ends_at_the_second(books: Dev) -> None:
    url = books.record.database_url.replace("apiary_dev_deployer", "apiary_dev_runtime")

    def begin() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "apiary.cli", "executor", "--name", "mine", "--lease", "5",
             "--threads", "2", "--grace", "30"],
            cwd=books.folder, env=environment(APIARY_DATABASE_URL=url), stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline() == "executing as mine\n"
        return process

    process = begin()
    with psycopg.connect(books.record.database_url, autocommit=True) as connection:
        alive = "SELECT count(*) FROM apiary.executor WHERE name LIKE 'mine#%'"
        until(lambda: connection.execute(alive).fetchone() == (1,))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert connection.execute(alive).fetchone() == (0,)
    second = begin()
    second.send_signal(signal.SIGSTOP)
    second.send_signal(signal.SIGTERM)
    second.send_signal(signal.SIGINT)
    second.send_signal(signal.SIGCONT)
    assert second.wait(30) in (0, 128 + signal.SIGTERM, 128 + signal.SIGINT)
    for each in (process, second):
        assert each.stderr is not None
        each.stderr.close()
