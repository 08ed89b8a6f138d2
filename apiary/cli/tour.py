"""What `apiary demo` does: each step is a command that a user would type, and is checked."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..engine.storage import application_root
from ..errors import ExecutionError, UnavailableError
from .devstate import running_dev
from .output import write_text

__all__ = ["Tour"]

_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.1
_COMMAND = (sys.executable, "-m", "apiary.cli")

_WHO_WROTE = """\
SELECT e.relation, e.operation, e.key, i.function, i.run_id, i.xid
  FROM provenance.data_event e JOIN provenance.invocation i USING (run_id, seq)
 WHERE i.run_id = 'booking-42' AND e.operation <> 'R'
 ORDER BY e.event_id"""
_WHO_READ = """\
SELECT i.function, i.run_id, e.relation, e.key
  FROM provenance.data_event e JOIN provenance.invocation i USING (run_id, seq)
 WHERE e.operation = 'R' AND e.relation = 'hotel.hotel' ORDER BY i.started_at, e.key"""
_WHAT_RAN = """\
SELECT function, status, count(*) AS runs, round(avg(duration_ms), 1) AS mean_ms
  FROM provenance.invocation GROUP BY 1, 2 ORDER BY 1, 2"""


class Tour:
    """One demonstration in a folder of its own, of which nothing is left."""

    def __init__(self) -> None:
        self._seen: list[str] = []
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("APIARY_", "PG")) or name == "APIARY_PG_BIN"
        }

    def run(self) -> None:
        """Run all steps. Raises ExecutionError where something is not as it should be."""
        with tempfile.TemporaryDirectory(prefix="apiary-demo-") as name:
            folder = Path(name)
            folder.chmod(0o711)  # PostgreSQL's account passes through when this one is root's
            with self._dev(folder):
                self._deploy(folder)
                self._hotel(folder)
                self._shop(folder)
                self._retwis(folder)
                self._trips(folder)
                self._provenance(folder)
        self._say("What was seen")
        for line in self._seen:
            write_text(f"  - {line}\n")
        write_text("\nEverything is stopped. To go on: apiary dev --deploy\n")

    # The steps

    def _deploy(self, folder: Path) -> None:
        self._say("Deploy the built-in application")
        root = application_root()
        self._run(folder, "deploy", str(root))
        again = self._json(folder, "deploy", str(root), "--output", "json", quiet=True)
        _expect(again["changed"] is False, "the same content again changes nothing")
        self._note(
            f"{len(again['functions'])} functions and {len(again['workflows'])} workflows were put "
            "into the database, with their tables, in one transaction"
        )

    def _hotel(self, folder: Path) -> None:
        self._say("Reserve a room: the function runs inside the database, over gRPC")
        self._call(
            folder, "hotel.add_hotel", "hotel_id:=3", "hotel_name=Ritz", "rooms:=2",
            "longitude:=2.33", "latitude:=48.87",
        )  # fmt: skip
        reserve = ("hotel.reserve", "hotel_id:=3", "customer_id:=7", "--id", "booking-42")
        _expect(self._call(folder, *reserve) == 0, "the room is reserved")
        self._say("The same call again, as after a lost reply: it runs nothing")
        again = self._json(folder, "call", *reserve, "--output", "json")
        _expect(again["output"] == 0 and again["replayed"], "the second call is replayed")
        rows = self._rows(folder, "SELECT * FROM hotel.reservation WHERE customer_id = 7")
        _expect(len(rows) == 1, "there is one reservation")
        self._note("the same call with the same id twice made one reservation: exactly once")
        another = ("call", *reserve[:2], "customer_id:=8", *reserve[3:])
        self._run(folder, *another, code=4)
        self._note("the same id for another customer was refused (exit code 4)")
        hits = self._call(folder, "hotel.search", "longitude:=2.35", "latitude:=48.85")
        _expect(hits[0]["available_rooms"] == 1, "one of two rooms is left")

    def _shop(self, folder: Path) -> None:
        self._say("Shop: search, put into the cart, check out")
        self._call(
            folder, "shop.add_item", "item_id:=1", "item_name=Smoker", "inventory:=5", "cost:=30",
            "item_desc=calms a hive of bees",
        )  # fmt: skip
        found = self._call(folder, "shop.get_item", "person_id:=7", "text=bees", "max_cost:=50")
        _expect(found == 0, "the item is in the cart")
        total = self._call(folder, "shop.checkout", "person_id:=7")
        _expect(total == 30, "the order costs 30")
        self._note("a function that calls functions is one transaction (shop.get_item)")

    def _retwis(self, folder: Path) -> None:
        self._say("Retwis: post, follow, read the timeline")
        post = ("retwis.post", "user_id:=1", "post_id:=1", "timestamp:=100", "text=hello, bees")
        self._call(folder, *post)
        self._call(folder, "retwis.follow", "user_id:=2", "followee_id:=1")
        timeline = self._call(folder, "retwis.timeline", "user_id:=2")
        _expect(timeline == ["hello, bees"], "the timeline has the post")
        self._run(folder, "call", "retwis.follow", "user_id:=2", "followee_id:=1", code=1)
        self._note("an error rolls its effects back, and is recorded like a result")

    def _trips(self, folder: Path) -> None:
        self._say("Trips: a workflow of functions only runs inside the database")
        where = ("customer_id:=9", "longitude:=2.35", "latitude:=48.85", "--wait")
        self._run(folder, "workflow", "explain", "trips.book")
        booked = json.loads(
            self._run(folder, "workflow", "start", "trips.book", *where, "--id", "trip-1")
        )
        _expect(booked["hotel_name"] == "Ritz", "the last room of the Ritz is booked")
        self._say("No room is left: the workflow fails with the error that it declares")
        self._run(folder, "workflow", "start", "trips.book", *where, "--id", "trip-2", code=1)
        self._say("With a step outside the database, an executor runs it")
        self._call(
            folder, "hotel.add_hotel", "hotel_id:=4", "hotel_name=Meurice", "rooms:=1",
            "longitude:=2.32", "latitude:=48.86",
        )  # fmt: skip
        self._run(folder, "workflow", "explain", "trips.book_and_confirm")
        confirmed = json.loads(
            self._run(
                folder, "workflow", "start", "trips.book_and_confirm", *where, "--id", "trip-3"
            )
        )
        _expect(confirmed["booking"]["hotel_name"] == "Meurice", "the Meurice is booked")
        self._run(folder, "workflow", "get", "trip-3")
        self._note("a workflow ran in one call inside the database, another one in an executor")

    def _provenance(self, folder: Path) -> None:
        self._say("Which rows did booking-42 write?")
        written = self._rows(folder, _WHO_WROTE)
        _expect(
            [row["relation"] for row in written] == ["hotel.hotel", "hotel.reservation"],
            "booking-42 wrote the hotel and the reservation",
        )
        self._say("Who read the hotels?")
        _expect(len(self._rows(folder, _WHO_READ)) > 0, "reads are logged")
        self._say("What ran?")
        ran = self._rows(folder, _WHAT_RAN)
        failed = [row["function"] for row in ran if row["status"] == "FAILED"]
        _expect(failed == ["retwis.follow"], "one function has failed")
        calls = sum(row["runs"] for row in ran)
        self._note(f"the log knows {calls} function calls, and each row that they wrote or read")

    # Commands

    def _call(self, folder: Path, function: str, *arguments: str) -> Any:
        return json.loads(self._run(folder, "call", function, *arguments))

    def _json(self, folder: Path, *command: str, quiet: bool = False) -> Any:
        return json.loads(self._run(folder, *command, quiet=quiet))

    def _rows(self, folder: Path, statement: str) -> list[dict[str, Any]]:
        self._run(folder, "sql", statement)
        text = self._run(folder, "sql", statement, "--output", "json", quiet=True)
        rows: list[dict[str, Any]] = json.loads(text)
        return rows

    def _run(self, folder: Path, *command: str, code: int = 0, quiet: bool = False) -> str:
        """Run a command, show it and what it wrote, and return its standard output."""
        if not quiet:
            write_text(f"$ apiary {_typed(command)}\n")
        done = subprocess.run(
            [*_COMMAND, *command],
            cwd=folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if not quiet:
            write_text("".join(f"  {line}\n" for line in (done.stderr + done.stdout).splitlines()))
        if done.returncode != code:
            raise ExecutionError(
                f"`apiary {shlex.join(command)}` ended with exit code {done.returncode}, expected "
                f"{code}:\n{done.stderr}"
            )
        return done.stdout

    @contextmanager
    def _dev(self, folder: Path) -> Iterator[None]:
        """`apiary dev` in the folder, from when it serves until the block ends."""
        self._say("Start a private PostgreSQL and a server (apiary dev)")
        log = folder / "dev.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [*_COMMAND, "dev", "--port", "0"],
                cwd=folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait_until_it_serves(process, folder, log)
            write_text("".join(f"  {line}\n" for line in log.read_text().splitlines()))
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        _expect(process.returncode == 0, f"apiary dev stops cleanly:\n{log.read_text()}")

    def _say(self, title: str) -> None:
        write_text(f"\n== {title}\n")

    def _note(self, line: str) -> None:
        self._seen.append(line)


def _wait_until_it_serves(process: subprocess.Popen[bytes], folder: Path, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while running_dev(folder) is None:
        if process.poll() is not None:
            raise UnavailableError(f"apiary dev has ended:\n{log.read_text()}")
        if time.monotonic() > deadline:
            raise UnavailableError(f"apiary dev does not get ready:\n{log.read_text()}")
        time.sleep(_POLL_INTERVAL_S)


def _typed(command: tuple[str, ...]) -> str:
    """The command as one would type it: SQL, which is full of single quotes, in double ones."""
    return " ".join(f'"{word}"' if "'" in word else shlex.quote(word) for word in command)


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise ExecutionError(f"not as it should be: {what}")
