"""Procrastinate: single functions as jobs, woken by LISTEN/NOTIFY, with a worker in its process.

It has no steps and keeps no results, so that only single functions compare; the answer goes out
when the job's function returns, before the job is marked as done.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import psycopg

from ..plain import POOL_SIZE, Application, serializable_pool
from ..workloads import Request
from .base import THREADS, Adapter, Threads, missing_peer

try:
    from procrastinate import App, PsycopgConnector
except ImportError as error:
    raise missing_peer(error) from error

__all__ = ["ProcrastinateJobs"]


class ProcrastinateJobs(Adapter):
    """One queue and its worker."""

    async def open(self, url: str) -> None:
        self._application = Application()
        self._pool = serializable_pool(url)
        self._threads = Threads()
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._app = App(connector=PsycopgConnector(conninfo=url, max_size=POOL_SIZE))
        self._task = self._app.task(name="function")(self._job)
        await self._app.open_async()
        async with await psycopg.AsyncConnection.connect(url) as connection:
            cursor = await connection.execute("SELECT to_regclass('procrastinate_jobs')")
            row = await cursor.fetchone()
        if row is None or row[0] is None:
            await self._app.schema_manager.apply_schema_async()
        self._worker = asyncio.create_task(
            self._app.run_worker_async(
                concurrency=THREADS, listen_notify=True, install_signal_handlers=False
            )
        )

    async def close(self) -> None:
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)
        await self._app.close_async()
        self._threads.close()
        self._pool.close()

    async def call(self, request: Request) -> Any:
        token = uuid4().hex
        waiting = self._waiting[token] = asyncio.get_running_loop().create_future()
        await self._task.defer_async(
            token=token, target=request.target, arguments=request.arguments
        )
        try:
            return await waiting
        finally:
            del self._waiting[token]

    async def _job(self, token: str, target: str, arguments: dict[str, Any]) -> None:
        waiting = self._waiting[token]
        try:
            result = await self._threads.run(
                self._application.transact, self._pool, target, arguments
            )
        except psycopg.Error as error:
            waiting.set_exception(error)
            raise
        waiting.set_result(result)
