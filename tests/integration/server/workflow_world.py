"""A server and an executor in front of a database with workflows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

from psycopg.conninfo import make_conninfo

from apiary.engine.postgres import PostgresEngine
from apiary.execution.executor import Executor, ExecutorSettings
from apiary.execution.listening import Listener
from apiary.testing import LoopThread, rows
from tests.integration.server.running import Servers


class RunningExecutor:
    """An executor in a thread of its own."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.loop = LoopThread()
        self._url = url
        self._settings = ExecutorSettings(**{"poll_s": 0.5, "lease_s": 3.0, **settings})
        self.executor = self.loop.run(self._start())

    async def _start(self) -> Executor:
        self._engine = PostgresEngine(self._url)
        self._listener = Listener(self._url)
        executor = Executor(self._engine, self._listener, self._settings)
        await executor.start()
        return executor

    def close(self) -> None:
        """Drain it."""
        self.loop.run(self._stop())
        self.loop.close()

    async def _stop(self) -> None:
        await self.executor.drain(2.0)
        await self._listener.close()
        await self._engine.close()


class World:
    """One database, with servers and executors in front of it that log in with what they need."""

    def __init__(self, url: str) -> None:
        self.url = url  # the superuser's
        self._login = f"runtime_{uuid4().hex[:8]}"
        rows(url, f"CREATE ROLE {self._login} LOGIN PASSWORD 'test' IN ROLE apiary_runtime")
        self.runtime_url = make_conninfo(url, user=self._login, password="test")
        self.servers = Servers(url)
        self.servers.settings = replace(self.servers.settings, database_url=self.runtime_url)
        self._executors: list[RunningExecutor] = []

    def start_executor(self, **settings: Any) -> RunningExecutor:
        """Another executor."""
        running = RunningExecutor(self.runtime_url, **settings)
        self._executors.append(running)
        return running

    def rows(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        """Rows of a statement, as the superuser."""
        return rows(self.url, statement, *parameters)

    def entries(self, key: str) -> int:
        """How often a body has written under a key."""
        found = self.rows("SELECT count(*) AS n FROM ledger.entry WHERE key = %s", key)
        return int(found[0]["n"])

    def stop_executors(self) -> None:
        """Drain them all."""
        for running in self._executors:
            running.close()
        self._executors.clear()

    def close(self) -> None:
        """Stop everything."""
        self.servers.close()
        self.stop_executors()
        rows(self.url, f"DROP ROLE {self._login}")
