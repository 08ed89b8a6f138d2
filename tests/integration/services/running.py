"""A database with the repository's own application, and executors in front of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from apiary.authoring.failures import rebuild_exception
from apiary.engine.postgres import PostgresEngine, PostgresSettings
from apiary.engine.runs import RunStore
from apiary.execution.code import CodeCache
from apiary.execution.executor import Executor, ExecutorSettings
from apiary.execution.listening import Listener
from apiary.execution.starting import RunOptions, Starter
from apiary.testing import LoopThread, rows

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT", "STUCK")


class Service:
    """One database with the application; workflows are started in it, by executors or inside."""

    def __init__(self, url: str, application: str) -> None:
        self.url = url
        self.application = application
        self.loop = LoopThread()
        self._engine = PostgresEngine(url, PostgresSettings(pool_size=8))
        self._starter = Starter(RunStore(self._engine), CodeCache(self._engine))
        self._executors: list[tuple[Executor, Listener, PostgresEngine]] = []

    def execute_runs(self) -> None:
        """Start an executor in this process."""
        engine = PostgresEngine(self.url, PostgresSettings(pool_size=8))
        listener = Listener(self.url)
        executor = Executor(engine, listener, ExecutorSettings(poll_s=0.2))
        self._executors.append((executor, listener, engine))
        self.loop.run(executor.start())

    def close(self) -> None:
        """End the executors and close all connections."""
        for executor, listener, engine in self._executors:
            self.loop.run(executor.drain(5.0))
            self.loop.run(listener.close())
            self.loop.run(engine.close())
        self.loop.run(self._engine.close())
        self.loop.close()

    def start(self, workflow: str, /, run_id: str | None = None, **document: Any) -> str:
        """Start a run; its id."""
        options = RunOptions(run_id=run_id)
        request = self.loop.run(
            self._starter.prepare(self.application, workflow, document, "test", options)
        )
        return self.loop.run(self._starter.start(request)).run_id

    def wait(self, run_id: str, patience_s: float = 300.0) -> dict[str, Any]:
        """The row of a run that has ended."""
        row: dict[str, Any] = self.until(
            lambda: (found := self.row(run_id))["status"] in ENDED and found, patience_s
        )
        return row

    def run(self, workflow: str, /, **document: Any) -> Any:
        """The output of a run that succeeds; raises the error of one that does not."""
        row = self.wait(self.start(workflow, **document))
        if row["error"] is not None:
            raise rebuild_exception(row["error"], lambda module, name: None)
        assert row["status"] == "SUCCEEDED"
        return row["output"]

    def row(self, run_id: str) -> dict[str, Any]:
        """A run's row."""
        (row,) = self.query("SELECT * FROM apiary.run WHERE run_id = %s", run_id)
        return row

    def until(self, condition: Callable[[], Any], patience_s: float = 300.0) -> Any:
        """The first true value of a condition."""
        ends = time.monotonic() + patience_s
        while not (value := condition()):
            assert time.monotonic() < ends, f"waited {patience_s} s in vain"
            time.sleep(0.02)
        return value

    def query(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        """Rows of any statement, as the superuser."""
        return rows(self.url, statement, *parameters)
