"""A database with the test application, and executors in front of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from apiary.authoring.bundle import Bundle
from apiary.authoring.failures import rebuild_exception
from apiary.engine.postgres import PostgresEngine, PostgresSettings
from apiary.engine.runs import RunOutcome, RunStore
from apiary.execution.code import CodeCache
from apiary.execution.executor import Executor, ExecutorSettings
from apiary.execution.listening import Listener
from apiary.execution.starting import RunOptions, Starter
from apiary.testing import LoopThread, TestServer, rows
from tests.integration.workflows.application import bundle

APPLICATION = "kvapp"
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT", "STUCK")
PATIENCE_S = 60.0  # a bound for machines that are busy with other things


class Running:
    """An executor with its own connections, on the platform's loop."""

    def __init__(self, lab: Lab, **settings: Any) -> None:
        self._lab = lab
        url = settings.pop("url", lab.url)
        self.engine = PostgresEngine(url, PostgresSettings(pool_size=settings.pop("pool", 16)))
        self.listener = Listener(settings.pop("listener_url", url))
        chosen: dict[str, Any] = {"lease_s": 30.0, "poll_s": 0.5, **settings}
        self.executor = Executor(self.engine, self.listener, ExecutorSettings(**chosen))
        self._open = True
        lab.loop.run(self.executor.start())

    @property
    def identity(self) -> str:
        """Under which name it holds runs."""
        return self.executor._identity

    def crash(self) -> None:
        """End at once, giving nothing back: its leases run out."""
        self._end(self.executor.close())

    def drain(self, grace_s: float = 5.0) -> None:
        """End properly."""
        self._end(self.executor.drain(grace_s))

    def _end(self, ending: Any) -> None:
        if self._open:
            self._open = False
            self._lab.loop.run(ending)
            self._lab.loop.run(self.listener.close())
            self._lab.loop.run(self.engine.close())


class Lab:
    """One database, a loop for everything asynchronous, and ways to start and watch runs."""

    def __init__(self, url: str, *, pool_size: int = 8) -> None:
        self.url = url
        self.loop = LoopThread()
        self.engine = PostgresEngine(url, PostgresSettings(pool_size=pool_size))
        self.store = RunStore(self.engine)
        self.starter = Starter(self.store, CodeCache(self.engine))
        self._executors: list[Running] = []

    def close(self) -> None:
        for executor in self._executors:
            executor.crash()
        self.loop.run(self.engine.close())
        self.loop.close()

    def executor(self, **settings: Any) -> Running:
        """Another executor."""
        running = Running(self, **settings)
        self._executors.append(running)
        return running

    def start(self, workflow: str, /, **document: Any) -> str:
        """Start a run for executors; its id."""
        return self.start_with(workflow, {}, **document).run_id

    def start_with(self, workflow: str, options: dict[str, Any], /, **document: Any) -> RunOutcome:
        """Start a run with options (`RunOptions`); by default for executors."""
        chosen = RunOptions(**{"executor_only": True, **options})
        request = self.loop.run(
            self.starter.prepare(APPLICATION, f"w.{workflow}", document, "test", chosen)
        )
        return self.loop.run(self.starter.start(request))

    def run_inside(self, workflow: str, /, **document: Any) -> RunOutcome:
        """Run a workflow in the database."""
        return self.start_with(workflow, {"executor_only": False}, **document)

    def row(self, run_id: str) -> dict[str, Any]:
        """A run's row."""
        (row,) = self.query("SELECT * FROM apiary.run WHERE run_id = %s", run_id)
        return row

    def status(self, run_id: str) -> str:
        return str(self.row(run_id)["status"])

    def wait(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """The run's row when it is there and has ended, or has one of the statuses."""
        found: list[dict[str, Any]] = self.until(
            lambda: self.query(
                "SELECT * FROM apiary.run WHERE run_id = %s AND status = ANY (%s)",
                run_id,
                list(statuses or ENDED),
            )
        )
        return found[0]

    def output(self, run_id: str) -> Any:
        """The output of a run that succeeds."""
        row = self.wait(run_id)
        assert row["status"] == "SUCCEEDED", row["error"]
        return row["output"]

    def error(self, run_id: str) -> BaseException:
        """The error of a run that does not succeed."""
        row = self.wait(run_id)
        assert row["error"] is not None, row["status"]
        return rebuild_exception(row["error"], lambda _module, _name: None)

    def until(self, condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
        """The first true value of a condition."""
        ends = time.monotonic() + patience_s
        while not (value := condition()):
            assert time.monotonic() < ends, self.query(
                "SELECT run_id, status, epoch, ready_at, waiting_for FROM apiary.run LIMIT 5"
            )
            time.sleep(0.01)
        return value

    def operations(self, run_id: str) -> list[tuple[Any, ...]]:
        """The operations of a run: (seq, kind, name, status, output)."""
        rows = self.query(
            "SELECT seq, kind, name, status, output FROM apiary.operation"
            " WHERE run_id = %s AND seq > 0 ORDER BY seq",
            run_id,
        )
        return [tuple(row.values()) for row in rows]

    def effects(self) -> list[str]:
        """What functions have written, in order."""
        return [row["name"] for row in self.query("SELECT name FROM kv.effect ORDER BY id")]

    def value(self, k: int) -> int:
        """The value of a key, 0 if there is none."""
        rows = self.query("SELECT v FROM kv.kv WHERE k = %s", k)
        return int(rows[0]["v"]) if rows else 0

    def query(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        """Rows of any statement, as the superuser."""
        return rows(self.url, statement, *parameters)

    def ask(self, work: Any) -> Any:
        """Run a coroutine on the loop."""
        return self.loop.run(work)


@pytest.fixture(scope="session")
def workflow_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The test application, built once."""
    return bundle(tmp_path_factory.mktemp("application"))


@pytest.fixture
def lab(apiary_server: TestServer, workflow_bundle: Bundle) -> Iterator[Lab]:
    """A database of the test's own, with no executor yet."""
    name = apiary_server.create_database(workflow_bundle)
    made = Lab(apiary_server.url(name))
    try:
        yield made
    finally:
        made.close()
        apiary_server.drop_database(name)


@pytest.fixture
def running(lab: Lab) -> Running:
    """An executor with a long lease."""
    return lab.executor()
