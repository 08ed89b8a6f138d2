"""Databases with the repository's application, and executors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from apiary.authoring.bundle import Bundle
from apiary.authoring.failures import rebuild_exception
from apiary.engine.postgres import PostgresEngine, PostgresSettings
from apiary.engine.runs import RunStore
from apiary.execution.code import CodeCache
from apiary.execution.executor import Executor, ExecutorSettings
from apiary.execution.listening import Listener
from apiary.execution.starting import RunOptions, Starter
from apiary.testing import Platform, TestServer

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT", "STUCK")
PATIENCE_S = 300.0


class Service:
    """The application in one database: functions by `call`, workflows by `run`."""

    def __init__(self, url: str, application: str) -> None:
        self.url = url
        self.platform = Platform(url, application)
        self.loop = self.platform.loop
        self.engine = PostgresEngine(url, PostgresSettings(pool_size=16))
        self.starter = Starter(RunStore(self.engine), CodeCache(self.engine))
        self.listener = Listener(url)
        self.executor: Executor | None = None

    def start_executor(self) -> None:
        """Let this process carry runs out, too."""
        self.executor = Executor(
            self.engine, self.listener, ExecutorSettings(lease_s=30.0, poll_s=0.5)
        )
        self.loop.run(self.executor.start())

    def close(self) -> None:
        if self.executor is not None:
            self.loop.run(self.executor.drain(5.0))
        self.loop.run(self.listener.close())
        self.loop.run(self.engine.close())
        self.platform.close()

    def start(self, workflow: str, /, **document: Any) -> str:
        """Start a workflow with a JSON document; the run's id."""
        request = self.loop.run(
            self.starter.prepare(
                self.platform.application, workflow, document, "test", RunOptions()
            )
        )
        return str(self.loop.run(self.starter.start(request)).run_id)

    def output(self, run_id: str) -> Any:
        """The output of a run, when it has ended; raises its error."""
        row = self.until(
            lambda: (found := self.row(run_id))["status"] in ENDED and found, PATIENCE_S
        )
        if row["status"] != "SUCCEEDED":
            raise rebuild_exception(row["error"], lambda _module, _name: None)
        return row["output"]

    def run(self, workflow: str, /, **document: Any) -> Any:
        """Run a workflow; its output, or its error raised."""
        return self.output(self.start(workflow, **document))

    def call(self, function: str, /, **document: Any) -> Any:
        """Run a function; its output as JSON."""
        return self.platform.call(function, **document)

    def row(self, run_id: str) -> dict[str, Any]:
        (row,) = self.query("SELECT * FROM apiary.run WHERE run_id = %s", run_id)
        return row

    def query(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        """Rows of any statement, as the superuser."""
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def until(self, condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
        """The first true value of a condition."""
        ends = time.monotonic() + patience_s
        while not (value := condition()):
            assert time.monotonic() < ends, f"waited {patience_s} s in vain"
            time.sleep(0.01)
        return value


@pytest.fixture(scope="module")
def bare(apiary_server: TestServer, apiary_bundle: Bundle) -> Iterator[Service]:
    """The application without an executor, in a database of the module's own."""
    yield from _service(apiary_server, apiary_bundle)


@pytest.fixture(scope="session")
def service(apiary_server: TestServer, apiary_bundle: Bundle) -> Iterator[Service]:
    """The application with an executor in this process, for all who leave others' rows alone."""
    for service in _service(apiary_server, apiary_bundle):
        service.start_executor()
        yield service


def _service(server: TestServer, bundle: Bundle) -> Iterator[Service]:
    name = server.create_database(bundle)
    service = Service(server.url(name), bundle.application)
    try:
        yield service
    finally:
        service.close()
        server.drop_database(name)
